"""Metrics recorders, and the forwarding of metrics to them."""
