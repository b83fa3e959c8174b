"""TODO face of columns."""
