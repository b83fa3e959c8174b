"""TODO face of inspect."""
