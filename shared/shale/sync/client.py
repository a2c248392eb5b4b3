"""``shale.sync.Client``: the blocking client of the network interface, ``shale.client.SyncClient``."""

from shale.client.sync_client import SyncClient as Client

__all__ = ["Client"]
