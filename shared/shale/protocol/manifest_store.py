"""Manifests: the sequenced files that say what a database consists of."""

from dataclasses import replace
from functools import partial
from typing import TypeAlias

from shale.env import Env
from shale.format.manifest import decode_manifest, encode_manifest
from shale.format.names import boundary_key, manifest_key, manifest_prefix, parse_manifest_key
from shale.protocol.decoded import decoding_once
from shale.protocol.manifest_invariants import check_manifest
from shale.protocol.options import ProtocolOptions
from shale.protocol.transactional import EpochField, Fenceable, Stored
from shale.protocol.versioned import Namespace
from shale.protocol.versioned_store import VersionedStore
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Epoch, Manifest

StoredManifest: TypeAlias = Stored[Manifest]
FenceableManifest: TypeAlias = Fenceable[Manifest]

_DECODE = decoding_once(decode_manifest)


def _with_writer_epoch(manifest: Manifest, epoch: Epoch) -> Manifest:
    return replace(manifest, writer_epoch=epoch)


def _with_compactor_epoch(manifest: Manifest, epoch: Epoch) -> Manifest:
    return replace(manifest, compactor_epoch=epoch)


WRITER: EpochField[Manifest] = EpochField("writer", lambda manifest: manifest.writer_epoch, _with_writer_epoch)
COMPACTOR: EpochField[Manifest] = EpochField(
    "compactor", lambda manifest: manifest.compactor_epoch, _with_compactor_epoch
)


class ManifestStore(VersionedStore[Manifest]):
    """The manifests of the database at ``root``."""

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        env: Env,
        metrics: Metrics | None = None,
        options: ProtocolOptions | None = None,
    ) -> None:
        namespace = Namespace(
            resource="manifest",
            directory=manifest_prefix(root),
            boundary_key=boundary_key(root, "manifest"),
            key=partial(manifest_key, root),
            parse=partial(parse_manifest_key, root),
            encode=encode_manifest,
            decode=_DECODE,
            check=check_manifest,
        )
        super().__init__(store, namespace, env, metrics, options)
