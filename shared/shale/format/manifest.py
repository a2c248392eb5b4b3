"""Manifests: u16 version, then a FlatBuffer; no checksum (docs/reference/format.md 4).

Version 2 is written, or 1 for databases that old processes still read; both are read.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from flatbuffers import Builder

from shale._generated import schema
from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError
from shale.format.envelope import open_envelope, seal_envelope
from shale.format.exclusive import open_exclusive, seal_exclusive
from shale.format.flat.builder import finish
from shale.format.manifest_columns import LEFT_OUT
from shale.format.manifest_image import VIEWS_MIN, TreeWriter
from shale.format.manifest_reader import read_manifest_v1, read_manifest_v2
from shale.format.manifest_v1 import is_lossless_v1, write_manifest_v1
from shale.format.manifest_writer import write_manifest, write_trees
from shale.types import MANIFEST_VERSION, Manifest, ManifestVersion

_ROOTS: Mapping[int, str] = {1: "ManifestV1", MANIFEST_VERSION: "ManifestV2"}
_SST_BYTES = 400
"""About what an SST and its view take: the builder's buffer then need not grow, which copies it."""
_COLUMNS_BYTES_MIN = 8 * 1024
"""Larger manifests, from some 40 SSTs on, are read by columns."""


def encode_manifest(manifest: Manifest, version: ManifestVersion = MANIFEST_VERSION) -> bytes:
    """Return the bytes that SlateDB would write for this manifest: 0.17 for version 2, 0.15 for version 1.

    Raises:
        ManifestNeedsVersion2: version 1 cannot hold it.
    """
    return ManifestEncoder(version=version).encode(manifest)


def is_lossless(manifest: Manifest, version: ManifestVersion = MANIFEST_VERSION) -> bool:
    """Return whether decoding gives the same value: version 2 lacks two fields of version 1."""
    if version == 1:
        return is_lossless_v1(manifest)
    return manifest.wal_object_store_uri is None and all(
        tree.last_compacted_l0_sst_id is None for _, tree in manifest.trees()
    )


class ManifestEncoder:
    """Encodes the versions of one manifest, and reuses what it made for the version before."""

    def __init__(self, views_min: int = VIEWS_MIN, *, version: ManifestVersion = MANIFEST_VERSION) -> None:
        """``views_min``: how many views a manifest of version 2 must have to be written with a kernel."""
        self._trees = TreeWriter(views_min)
        self._version = version

    def encode(self, manifest: Manifest) -> bytes:
        """See ``encode_manifest``."""
        builder = _builder_for(manifest)
        if self._version == 1:
            return seal_envelope(1, finish(builder, write_manifest_v1(builder, manifest)))
        trees = self._trees.write(builder, manifest) or write_trees(builder, manifest)
        sealed = seal_envelope(MANIFEST_VERSION, finish(builder, write_manifest(builder, manifest, trees)))
        return sealed if manifest.exclusive is None else seal_exclusive(manifest.exclusive, sealed)


def _builder_for(manifest: Manifest) -> Builder:
    count = sum(len(tree.l0) + sum(len(run.ssts) for run in tree.compacted) for _, tree in manifest.trees())
    return Builder(1024 + _SST_BYTES * count)


def decode_manifest(data: BytesLike, *, path: str | None = None) -> Manifest:
    """Read a manifest of version 1 or 2, within its envelope if it has one.

    Raises:
        InvalidVersion: another version, or a mode of a later release.
        CorruptionError: the bytes are not a manifest, or contradict themselves.
    """
    modes, inner = open_exclusive(data, path)
    found = decode_by_columns(inner, path) if len(inner) >= _COLUMNS_BYTES_MIN else None
    manifest = decode_plain(inner, path) if found is None else found
    return manifest if modes is None else replace(manifest, exclusive=modes)


def decode_by_columns(data: BytesLike, path: str | None = None) -> Manifest | None:
    """Read a manifest of version 2 that has many SSTs; ``None`` if the plain reader must read it or explain it."""
    with suppress(CorruptionError):
        version, source = open_envelope(data, what="manifest", roots=_ROOTS, path=path, left_out=LEFT_OUT)
        if version == MANIFEST_VERSION:
            return read_manifest_v2(source, schema.ManifestV2.GetRootAs(source.data), by_columns=True)
    return None


def decode_plain(data: BytesLike, path: str | None = None) -> Manifest:
    """Read a manifest with the generated code; see ``decode_manifest``."""
    version, source = open_envelope(data, what="manifest", roots=_ROOTS, path=path)
    if version == 1:
        return read_manifest_v1(source, schema.ManifestV1.GetRootAs(source.data))
    return read_manifest_v2(source, schema.ManifestV2.GetRootAs(source.data))
