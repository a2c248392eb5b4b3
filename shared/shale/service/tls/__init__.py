"""TLS of the ports: certificates, their expiry, and their replacement while the daemon runs."""
