"""Compactions files: the sequenced files through which coordinator and workers communicate."""

from dataclasses import replace
from typing import TypeAlias

from shale.env import Env
from shale.errors import ObjectVersionExists
from shale.format.compactions import decode_compactions, encode_compactions
from shale.format.names import compactions_key, parse_compactions_key
from shale.protocol.compaction_records import CompactionRecords
from shale.protocol.options import ProtocolOptions
from shale.protocol.transactional import EpochField, Fenceable, Stored
from shale.protocol.versioned import Namespace, database_namespace
from shale.protocol.versioned_store import DatabaseStore, cached_decoder
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Compactions, Epoch

StoredCompactions: TypeAlias = Stored[Compactions]
FenceableCompactions: TypeAlias = Fenceable[Compactions]

DECODE = cached_decoder(decode_compactions)


def _with_epoch(compactions: Compactions, epoch: Epoch) -> Compactions:
    return replace(compactions, compactor_epoch=epoch)


COORDINATOR: EpochField[Compactions] = EpochField("compactor", lambda value: value.compactor_epoch, _with_epoch)


class CompactionsStore(DatabaseStore[Compactions]):
    """The compactions files of the database at ``root``, and beside them the records of its compactions."""

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        env: Env,
        metrics: Metrics | None = None,
        options: ProtocolOptions | None = None,
    ) -> None:
        super().__init__(store, root, env, metrics, options)
        self.records = CompactionRecords(store, root)

    @staticmethod
    def namespace_of(root: str) -> Namespace[Compactions]:
        """See ``DatabaseStore``."""
        return database_namespace(
            root,
            "compactions",
            key=compactions_key,
            parse=parse_compactions_key,
            encode=encode_compactions,
            decode=DECODE,
        )

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
