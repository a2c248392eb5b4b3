"""Judges processes and the database: memory, exit codes, logs, damage, garbage."""
