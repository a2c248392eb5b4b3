"""The compactor."""
