"""Scans over HTTP: requests, resume tokens, formats, streams."""
