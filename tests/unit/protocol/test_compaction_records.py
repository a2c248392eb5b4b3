"""Records of compactions: several processes write one (docs/reference/protocol.md 6.16)."""

from dataclasses import replace
from typing import Any

import anyio
import pytest

from shale.compaction.records import CompactionKind, CompactionRecord, encode_record
from shale.errors import Precondition, UnavailableError
from shale.format.names import compaction_record_key
from shale.protocol.compaction_records import CompactionRecords
from shale.store.memory import MemoryStore
from shale.store.port import CREATE, OVERWRITE, GetResult, ObjectMeta, Update
from shale.types import CasMode, Ulid

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


KEY = compaction_record_key("db", JOB)


class Modes(MemoryStore):
    """Records how objects are put, and refuses the first puts."""

    def __init__(self, *, refuses: int = 0) -> None:
        super().__init__()
        self.modes: list[Any] = []
        self.refuses = refuses

    async def put(self, key: str, *args: Any, mode: Any = OVERWRITE, **options: Any) -> Any:
        self.modes.append(mode)
        if len(self.modes) <= self.refuses:
            raise Precondition(key)
        return await super().put(key, *args, mode=mode, **options)


class TwoPhase(Modes):
    cas = CasMode.TWO_PHASE


class WithoutEtags(Modes):
    async def get(self, key: str) -> GetResult | None:
        found = await super().get(key)
        return found and GetResult(found.data, ObjectMeta(key, found.meta.size, 0))


def test_a_record_is_created_and_then_replaced() -> None:
    async def main() -> None:
        store = Modes()
        records = CompactionRecords(store, "db")
        assert records.key(JOB) == KEY
        assert await records.read(JOB) is None
        first = await records.change(JOB, as_retry)
        assert first == CompactionRecord(id=JOB, retry_of=FAILED)
        etag = store.objects[KEY].meta.etag
        assert etag is not None
        second = await records.change(JOB, as_external)
        assert second == replace(first, kind=CompactionKind.EXTERNAL)
        assert await records.read(JOB) == second
        assert await records.change(JOB, as_external) == second
        assert store.modes == [CREATE, Update(etag)], "the last change changed nothing"

    anyio.run(main)


@pytest.mark.parametrize("store", [TwoPhase(), WithoutEtags()], ids=["two phases", "no etags"])
def test_where_a_condition_is_dear_or_unknown_a_record_is_overwritten(store: Modes) -> None:
    async def main() -> None:
        records = CompactionRecords(store, "db")
        for change in (as_retry, as_external):
            await records.change(JOB, change)
        assert store.modes == ([OVERWRITE] * 2 if isinstance(store, TwoPhase) else [CREATE, OVERWRITE])
        assert await records.read(JOB) == CompactionRecord(id=JOB, retry_of=FAILED, kind=CompactionKind.EXTERNAL)

    anyio.run(main)


@pytest.mark.parametrize("refuses", [1, 7])
def test_the_eighth_attempt_overwrites(refuses: int) -> None:
    async def main() -> None:
        store = Modes(refuses=refuses)
        assert await CompactionRecords(store, "db").change(JOB, as_retry) == CompactionRecord(id=JOB, retry_of=FAILED)
        assert store.modes == [CREATE] * refuses + [OVERWRITE if refuses == 7 else CREATE]

    anyio.run(main)


def test_a_corrupt_record_counts_as_none_and_is_replaced() -> None:
    async def main() -> None:
        store = Modes()
        await store.put(KEY, b"{")
        etag = store.objects[KEY].meta.etag
        assert etag is not None
        store.modes.clear()
        records = CompactionRecords(store, "db")
        assert await records.read(JOB) is None
        assert await records.change(JOB, as_retry) == CompactionRecord(id=JOB, retry_of=FAILED)
        assert store.modes == [Update(etag)]

    anyio.run(main)


def test_a_record_that_cannot_be_written_fails_nothing() -> None:
    class Away(MemoryStore):
        async def put(self, *_args: Any, **_options: Any) -> Any:
            raise UnavailableError("away")

    async def main() -> None:
        assert await CompactionRecords(Away(), "db").change(JOB, as_retry) is None

    anyio.run(main)


def test_records_are_listed_by_their_ids() -> None:
    async def main() -> None:
        store = MemoryStore()
        for job in (FAILED, JOB):
            await store.put(compaction_record_key("db", job), encode_record(CompactionRecord(id=job)))
        await store.put("db/compaction_records/readme.txt", b"x")
        (page,) = [page async for page in CompactionRecords(store, "db").pages()]
        assert [(job, meta.key) for job, meta in page] == [
            (FAILED, compaction_record_key("db", FAILED)),
            (JOB, KEY),
        ]

    anyio.run(main)
