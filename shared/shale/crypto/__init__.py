"""Crypto."""
