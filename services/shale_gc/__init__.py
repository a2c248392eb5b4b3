"""The gc."""
