"""The commands of ``shale clone``."""
