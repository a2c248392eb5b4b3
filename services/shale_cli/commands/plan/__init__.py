"""The command ``shale plan``."""
