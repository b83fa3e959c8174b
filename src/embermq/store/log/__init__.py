"""TODO face of log."""
