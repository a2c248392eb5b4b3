"""Iterators over rows in columns: merge, retention, merge operands, resume, visibility."""
