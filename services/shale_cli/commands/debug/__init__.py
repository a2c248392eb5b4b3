"""The commands of ``shale debug``."""
