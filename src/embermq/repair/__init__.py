"""TODO face of repair."""
