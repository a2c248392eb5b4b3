"""Administration of a database from outside of its processes; ``Admin`` is the entry point."""
