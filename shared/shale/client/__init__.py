"""A client of the network interface (docs/http.md): ``Client`` with an event loop, ``SyncClient`` without."""

from shale.client.client import Client, RemoteSnapshot
from shale.client.errors import CompareFailed, StateGone
from shale.client.ops import Compare, Ops, Written
from shale.client.sync_client import SyncClient, SyncSnapshot

__all__ = [
    "Client",
    "Compare",
    "CompareFailed",
    "Ops",
    "RemoteSnapshot",
    "StateGone",
    "SyncClient",
    "SyncSnapshot",
    "Written",
]
