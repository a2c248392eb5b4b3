"""The reader."""
