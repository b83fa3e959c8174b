"""Values of the message world: no I/O, no clock, no threads."""
