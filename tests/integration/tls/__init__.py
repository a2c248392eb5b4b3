"""TLS of the ports of running daemons."""
