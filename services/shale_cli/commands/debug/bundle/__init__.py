"""Collects the data of a bug report in one file, without secrets, values and (by default) keys."""
