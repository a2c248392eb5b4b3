"""The manifests of a database, for tasks that place or renew a checkpoint in them."""

from shale.engine.location import DatabaseStores
from shale.env import Env
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions


def manifests_of(stores: DatabaseStores, root: str, env: Env) -> ManifestStore:
    """Return the manifests; new ones have the version that the options of the job name."""
    options = ProtocolOptions(manifest_write_version=stores.manifest_write_version)
    return ManifestStore(stores.main, root, env, options=options)
