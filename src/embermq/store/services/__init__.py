"""TODO face of services."""
