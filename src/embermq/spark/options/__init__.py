"""TODO face of options."""
