"""The GC daemon: ``shale.gc`` with settings, health checks and an admin API, for one or more databases."""
