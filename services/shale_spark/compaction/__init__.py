"""Compaction on executors: a compaction worker plans key ranges, and each range is a task."""
