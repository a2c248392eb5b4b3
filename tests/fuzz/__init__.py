"""Fuzzing of every parser that meets foreign bytes; ``python -m tests.fuzz --help``."""
