"""Manifests: the sequenced files that name the parts of a database."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from shale.env import Env
from shale.errors import ONE_WRITER, InvalidDbState
from shale.format.manifest import ManifestEncoder, decode_manifest, is_lossless
from shale.format.names import manifest_key, parse_manifest_key
from shale.protocol.manifest_invariants import check_manifest, require_room
from shale.protocol.options import ProtocolOptions
from shale.protocol.transactional import EpochField, Fenceable, Stored
from shale.protocol.versioned import Namespace, database_namespace, is_never_lossless
from shale.protocol.versioned_store import DatabaseStore, VersionedStore, cached_decoder
from shale.store.port import ObjectStore
from shale.store.wrapper import cas_of
from shale.telemetry.metrics import Metrics
from shale.types import MANIFEST_VERSION, CasMode, Epoch, ExclusiveModes, Manifest

StoredManifest: TypeAlias = Stored[Manifest]
FenceableManifest: TypeAlias = Fenceable[Manifest]

DECODE = cached_decoder(decode_manifest)


def _with_writer_epoch(manifest: Manifest, epoch: Epoch) -> Manifest:
    return replace(manifest, writer_epoch=epoch)


def _with_compactor_epoch(manifest: Manifest, epoch: Epoch) -> Manifest:
    return replace(manifest, compactor_epoch=epoch)


WRITER: EpochField[Manifest] = EpochField(
    "writer", lambda manifest: manifest.writer_epoch, _with_writer_epoch, advice=ONE_WRITER
)
COMPACTOR: EpochField[Manifest] = EpochField(
    "compactor", lambda manifest: manifest.compactor_epoch, _with_compactor_epoch
)


def _encode_for(cas: CasMode, encode: Callable[[Manifest], bytes], manifest: Manifest) -> bytes:
    modes = manifest.exclusive if manifest.exclusive is not None else ExclusiveModes()
    return encode(replace(manifest, exclusive=replace(modes, cas=cas)))


def _accept_for(cas: CasMode, manifest: Manifest, path: str) -> None:
    require_room(manifest, path)
    found = CasMode.NATIVE if manifest.exclusive is None else manifest.exclusive.cas
    if found is cas:
        return
    advice = (
        "set store.cas=two-phase and store.transactional_url"
        if found is CasMode.TWO_PHASE
        else "stop all processes and run 'shale cas migrate --to two-phase'"
    )
    raise InvalidDbState(f"{path}: the database has store.cas={found.value}, this process {cas.value}: {advice}")


class ManifestStore(DatabaseStore[Manifest]):
    """The manifests of the database at ``root``.

    The newest says how the database creates its files.  A process that does it otherwise would see files that another
    one has not committed, or create them twice, so it is refused.  Older versions may be from before a migration.
    """

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        env: Env,
        metrics: Metrics | None = None,
        options: ProtocolOptions | None = None,
    ) -> None:
        cas = cas_of(store)
        namespace = replace(self.namespace_of(root), accept=partial(_accept_for, cas))
        if options is not None and (version := options.manifest_write_version) != MANIFEST_VERSION:
            encode, is_same = ManifestEncoder(version=version).encode, partial(is_lossless, version=version)
            namespace = replace(namespace, encode=encode, is_lossless=is_same)
        if cas is not CasMode.NATIVE:
            namespace = replace(
                namespace, encode=partial(_encode_for, cas, namespace.encode), is_lossless=is_never_lossless
            )
        VersionedStore.__init__(self, store, namespace, env, metrics, options)

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
