"""``shale spark``: the Spark jobs as commands."""

HELP = "Bulk work as Spark jobs.  Needs pip install 'shale[spark]' and Java 17."
"""Defined here, so that ``shale --help`` shows it without importing the commands."""
