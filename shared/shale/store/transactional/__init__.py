"""Transactional stores: where the two-phase mode keeps its commit records (docs/reference/protocol.md 12)."""
