"""Shale: a storage engine for key-value databases that live entirely in an object store."""
