"""TODO face of compare."""
