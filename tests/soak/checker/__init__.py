"""Judges histories: which orders of the operations explain what the clients saw."""
