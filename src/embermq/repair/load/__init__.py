"""TODO face of load."""
