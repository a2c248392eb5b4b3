"""Reads sections of SSTs: bytes, metadata and blocks, with reads that wait and with reads that do not."""
