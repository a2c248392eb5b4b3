"""The commands of ``shale gc``."""
