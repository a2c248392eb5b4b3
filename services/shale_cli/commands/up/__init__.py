"""The command ``shale up``."""
