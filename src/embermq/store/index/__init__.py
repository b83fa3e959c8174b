"""TODO face of index."""
