"""The commands of ``shale compaction``."""
