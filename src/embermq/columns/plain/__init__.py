"""TODO face of plain."""
