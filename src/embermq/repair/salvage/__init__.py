"""TODO face of salvage."""
