"""The life cycle, settings, health and HTTP server that all daemons share."""
