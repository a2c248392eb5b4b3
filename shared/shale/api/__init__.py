"""The HTTP API of one open database."""
