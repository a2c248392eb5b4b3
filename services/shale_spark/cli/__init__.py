"""``shale spark``: the jobs of this room as commands."""

HELP = "Bulk work as Spark jobs.  Needs pip install 'shale[spark]' and Java 17."
"""Stands here, where nothing else is: ``shale --help`` tells it without importing the commands."""
