"""Memtable."""
