"""TODO face of reading."""
