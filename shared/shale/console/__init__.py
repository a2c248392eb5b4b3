"""The console: a read-only page about one database, on the admin port of every daemon (docs/how-to/console.md)."""
