"""Conditional creates on stores without conditional writes, through a transactional store (docs/reference/protocol.md
12)."""
