"""TODO face of writing."""
