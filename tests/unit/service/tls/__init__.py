"""Certificates of the ports."""
