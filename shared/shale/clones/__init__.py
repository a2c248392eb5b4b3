"""Databases made of other databases: clones, projections and unions (docs/protocol.md 10, 11; docs/clones.md)."""
