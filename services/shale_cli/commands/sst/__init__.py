"""The commands of ``shale sst``."""
