"""Settings of who may use a port, and how much."""
