"""What deletes what nobody can need any more, and says why (docs/protocol.md 8)."""
