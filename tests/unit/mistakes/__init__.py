"""Mistakes of callers, and the errors that they get."""
