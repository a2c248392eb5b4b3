"""Manifests: the sequenced files that name the parts of a database."""

from dataclasses import replace
from typing import TypeAlias

from shale.format.manifest import ManifestEncoder, decode_manifest, is_lossless
from shale.format.names import manifest_key, parse_manifest_key
from shale.protocol.manifest_invariants import check_manifest
from shale.protocol.transactional import EpochField, Fenceable, Stored
from shale.protocol.versioned import Namespace, database_namespace
from shale.protocol.versioned_store import DatabaseStore, cached_decoder
from shale.types import Epoch, Manifest

StoredManifest: TypeAlias = Stored[Manifest]
FenceableManifest: TypeAlias = Fenceable[Manifest]

DECODE = cached_decoder(decode_manifest)


def _with_writer_epoch(manifest: Manifest, epoch: Epoch) -> Manifest:
    return replace(manifest, writer_epoch=epoch)


def _with_compactor_epoch(manifest: Manifest, epoch: Epoch) -> Manifest:
    return replace(manifest, compactor_epoch=epoch)


WRITER: EpochField[Manifest] = EpochField("writer", lambda manifest: manifest.writer_epoch, _with_writer_epoch)
COMPACTOR: EpochField[Manifest] = EpochField(
    "compactor", lambda manifest: manifest.compactor_epoch, _with_compactor_epoch
)


class ManifestStore(DatabaseStore[Manifest]):
    """The manifests of the database at ``root``."""

    @staticmethod
    def namespace_of(root: str) -> Namespace[Manifest]:
        """See ``DatabaseStore``."""
        namespace = database_namespace(
            root,
            "manifest",
            key=manifest_key,
            parse=parse_manifest_key,
            encode=ManifestEncoder().encode,
            decode=DECODE,
            check=check_manifest,
        )
        return replace(namespace, is_lossless=is_lossless)
