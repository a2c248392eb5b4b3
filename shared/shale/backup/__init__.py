"""Backups: copies of a database in another store (docs/how-to/backup-and-restore.md)."""
