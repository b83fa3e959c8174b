"""TODO face of planning."""
