"""Checks of a database: its metadata, the objects that they reference, and unreferenced objects."""
