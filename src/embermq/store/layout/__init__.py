"""TODO face of layout."""
