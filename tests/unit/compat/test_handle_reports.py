"""Reports about handles: bytes written, metrics that are still zero, and unclosed handles."""

import asyncio
import gc
import weakref

import pytest

from shale.compat.slatedb import uniffi as slatedb
from tests.unit.compat.harness import PATH, memory, opened, opened_reader, settings


def written(recorder: slatedb.DefaultMetricsRecorder) -> int:
    (metric,) = recorder.metrics_by_name("slatedb.db.memtable_write_bytes")
    count: int = metric.value[0]
    return count


def test_bytes_written_are_those_of_keys_and_values() -> None:
    async def main() -> None:
        store, recorder = memory(), slatedb.DefaultMetricsRecorder()
        async with opened(store, lambda builder: builder.with_metrics_recorder(recorder)) as db:
            await db.put(b"hello", b"world!")
            assert written(recorder) == 11
            await db.delete(b"k3")
            batch = slatedb.WriteBatch()
            batch.put(b"a", b"1")
            batch.put(b"a", b"22")
            await db.write(batch)
            assert written(recorder) == 11 + 2 + 3
            await db.flush()
            await db.put(b"b", b"1")
            assert written(recorder) == 11 + 2 + 3 + 2
        again = slatedb.DefaultMetricsRecorder()
        async with opened(store, lambda builder: builder.with_metrics_recorder(again)) as db:
            await db.put(b"c", b"1")
            assert written(again) == 2

    asyncio.run(main())


def test_counters_are_there_while_nothing_was_counted() -> None:
    async def main() -> None:
        recorder = slatedb.DefaultMetricsRecorder()
        collecting = {"compacted_options": {"interval": "1h", "min_age": "1h"}}
        changed = {"garbage_collector_options": collecting}
        async with opened(memory(), lambda builder: builder.with_metrics_recorder(recorder), **changed):
            async with asyncio.timeout(30):
                while not (deleted := recorder.metrics_by_name("slatedb.gc.deleted_count")):  # noqa: ASYNC110
                    await asyncio.sleep(0)  # the collector is about to begin
            assert {metric.labels[0].value for metric in deleted} >= {"manifest", "wal", "compacted", "compactions"}
            assert {metric.value[0] for metric in deleted} == {0}
            assert [metric.value[0] for metric in recorder.metrics_by_name("slatedb.db_cache.error_count")] == [0]

    asyncio.run(main())


@pytest.mark.parametrize("is_reader", [False, True])
def test_a_recorder_keeps_nothing_of_closed_handles(is_reader: bool) -> None:
    recorder = slatedb.DefaultMetricsRecorder()
    left: list[weakref.ref[object]] = []

    async def main() -> None:
        store = memory()
        async with opened(store) as db:
            await db.put(b"k", b"v")
        opening = opened_reader if is_reader else opened
        async with opening(store, lambda builder: builder.with_metrics_recorder(recorder)) as handle:
            left.append(weakref.ref(handle._recording._metrics))

    asyncio.run(main())
    gc.collect()
    assert [each() for each in left] == [None]
    assert recorder.snapshot()


def test_a_handle_whose_loop_has_ended_is_not_open() -> None:
    async def main() -> slatedb.Db:
        builder = slatedb.DbBuilder(PATH, memory())
        builder.with_settings(settings())
        db = await builder.build()
        assert db.status().close_reason is None
        return db

    assert asyncio.run(main()).status().close_reason is not None
