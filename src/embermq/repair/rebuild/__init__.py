"""TODO face of rebuild."""
