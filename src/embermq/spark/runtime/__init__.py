"""TODO face of runtime."""
