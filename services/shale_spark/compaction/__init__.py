"""Compaction on executors: the worker of a compactor plans ranges, and each one is a task."""
