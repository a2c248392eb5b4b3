"""Clones, projections and unions: new databases that share the SSTs of others.

Source: docs/reference/protocol.md 10, 11; docs/how-to/clones.md.
"""
