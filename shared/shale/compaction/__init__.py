"""Compaction rules and policies: specs, the rules V1–V13, scheduling.  Pure functions of frozen values."""
