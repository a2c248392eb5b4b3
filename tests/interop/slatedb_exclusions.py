"""Which tests of SlateDB's own suite are not run, and why."""

EXCLUDED: dict[str, str] = {}
"""Tests that cannot pass, with the reason that docs/compat.md gives."""
