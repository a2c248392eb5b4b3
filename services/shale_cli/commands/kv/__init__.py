"""The commands of ``shale kv``."""
