"""TODO face of streaming."""
