"""Metrics and log events: their catalogues, and how both are written."""
