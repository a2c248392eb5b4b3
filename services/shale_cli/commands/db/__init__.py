"""The commands of ``shale db``."""
