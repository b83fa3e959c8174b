"""TODO face of verify."""
