"""The tests of SlateDB's own suite that are not run, each with the reason."""

EXCLUDED: dict[str, str] = {}
"""Tests that cannot pass, with the reason that docs/how-to/migrate-from-slatedb.md gives."""
