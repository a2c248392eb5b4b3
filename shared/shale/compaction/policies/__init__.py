"""Compaction policies: which compactions are worth their cost (docs/reference/protocol.md 6.7)."""
