"""Garbage collection: deletes objects that no process can need, and logs why (docs/reference/protocol.md 8)."""
