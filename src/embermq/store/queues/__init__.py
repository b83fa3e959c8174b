"""TODO face of queues."""
