"""TODO face of recovery."""
