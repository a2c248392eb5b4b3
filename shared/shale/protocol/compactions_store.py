"""Compactions files: the sequenced files in which coordinator and workers meet."""

from dataclasses import replace
from functools import partial
from typing import TypeAlias

from shale.env import Env
from shale.errors import ObjectVersionExists
from shale.format.compactions import decode_compactions, encode_compactions
from shale.format.names import boundary_key, compactions_key, compactions_prefix, parse_compactions_key
from shale.protocol.decoded import decoding_once
from shale.protocol.options import ProtocolOptions
from shale.protocol.transactional import EpochField, Fenceable, Stored
from shale.protocol.versioned import Namespace
from shale.protocol.versioned_store import VersionedStore
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Compactions, Epoch

StoredCompactions: TypeAlias = Stored[Compactions]
FenceableCompactions: TypeAlias = Fenceable[Compactions]

_DECODE = decoding_once(decode_compactions)


def _with_epoch(compactions: Compactions, epoch: Epoch) -> Compactions:
    return replace(compactions, compactor_epoch=epoch)


COORDINATOR: EpochField[Compactions] = EpochField("compactor", lambda value: value.compactor_epoch, _with_epoch)


class CompactionsStore(VersionedStore[Compactions]):
    """The compactions files of the database at ``root``."""

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        env: Env,
        metrics: Metrics | None = None,
        options: ProtocolOptions | None = None,
    ) -> None:
        namespace = Namespace(
            resource="compactions",
            directory=compactions_prefix(root),
            boundary_key=boundary_key(root, "compactions"),
            key=partial(compactions_key, root),
            parse=partial(parse_compactions_key, root),
            encode=encode_compactions,
            decode=_DECODE,
        )
        super().__init__(store, namespace, env, metrics, options)

    async def load_or_create(self) -> StoredCompactions:
        """The newest version, or an empty first one with epoch 0."""
        while True:
            latest = await self.try_read_latest()
            if latest is not None:
                return Stored(self, latest, self._env)
            try:
                return await self.create_new(Compactions())
            except ObjectVersionExists:
                continue
