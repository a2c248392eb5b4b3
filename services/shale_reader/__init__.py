"""The reader daemon."""
