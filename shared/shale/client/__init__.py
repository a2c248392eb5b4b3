"""Clients of the HTTP API (docs/reference/http.md): ``Client`` (async) and ``SyncClient`` (blocking)."""

from shale.client.client import Client, RemoteSnapshot
from shale.client.errors import CompareFailed, SnapshotExpired
from shale.client.ops import Compare, Ops, WriteResult
from shale.client.sync_client import SyncClient, SyncSnapshot

__all__ = [
    "Client",
    "Compare",
    "CompareFailed",
    "Ops",
    "RemoteSnapshot",
    "SnapshotExpired",
    "SyncClient",
    "SyncSnapshot",
    "WriteResult",
]
