"""Records of compactions: several processes write one (docs/reference/protocol.md 6.16)."""

from dataclasses import replace

import anyio

from shale.compaction.records import CompactionKind, CompactionRecord
from shale.protocol.compaction_records import CompactionRecords
from shale.store.memory import MemoryStore
from shale.store.port import GetResult
from shale.types import Ulid

JOB = Ulid.from_parts(9, 9)
FAILED = Ulid.from_parts(8, 8)


def as_retry(record: CompactionRecord) -> CompactionRecord:
    return replace(record, retry_of=FAILED)


def as_external(record: CompactionRecord) -> CompactionRecord:
    return replace(record, kind=CompactionKind.EXTERNAL)


class Overtaken(MemoryStore):
    """Another process writes the first record after this one has found none."""

    is_overtaken = False

    async def get(self, key: str) -> GetResult | None:
        found = await super().get(key)
        if not self.is_overtaken:
            self.is_overtaken = True
            await CompactionRecords(self, "db").change(JOB, as_external)
        return found


def test_of_two_first_writes_none_is_lost() -> None:
    async def main() -> None:
        records = CompactionRecords(Overtaken(), "db")
        await records.change(JOB, as_retry)
        record = await records.read(JOB)
        assert record is not None
        assert (record.kind, record.retry_of) == (CompactionKind.EXTERNAL, FAILED)

    anyio.run(main)
