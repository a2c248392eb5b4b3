"""The writer daemon."""
