"""TODO face of append."""
