"""Background work of SlateDB's writer and its reports: compactions, collections, metrics and log lines."""

import asyncio
import logging
from collections.abc import Iterator

import anyio.lowlevel
import pytest

from shale.compat.slatedb import uniffi as slatedb
from shale.compat.slatedb.embedded import EmbeddedTasks
from shale.compat.slatedb.metrics.bridge import MetricsBridge
from shale.telemetry.metrics import Metrics
from tests.unit.compat.harness import EVERYTHING, PATH, TO_L0, memory, merging, opened, opened_reader

FAST = {"poll_interval": "020ms", "commit_compacted_interval": "010ms"}
COMPACTOR = {
    **FAST,
    "manifest_update_timeout": "300s",
    "max_concurrent_compactions": 2,
    "worker_heartbeat_timeout": "30s",
    "worker": {
        "max_concurrent_compactions": 2,
        "compactions_poll_interval": "020ms",
        "heartbeat_interval": "10s",
        "max_sst_size": 1 << 20,
        "max_fetch_tasks": 1,
        "bytes_to_fetch": 1 << 20,
        "max_subcompactions": 1,
        "min_filter_keys": 0,
    },
}


def test_a_writer_with_a_compactor_never_runs_out_of_room_in_l0() -> None:
    async def main() -> None:
        store = memory()
        async with opened(
            store,
            merging,
            compactor_options=COMPACTOR,
            l0_max_ssts=4,
            l0_max_ssts_per_key=4,
            manifest_poll_interval="020ms",
        ) as db:
            for number in range(24):
                await db.put(b"k%d" % number, b"v")
                await db.merge(b"all", b"%d," % number)
                async with asyncio.timeout(60):
                    await db.flush_with_options(TO_L0)
            admin = slatedb.AdminBuilder(PATH, store).build()
            view = await admin.read_compactor_state_view()
            assert view.compactions is not None
            assert view.manifest.compacted
            assert await db.get(b"all") == b"".join(b"%d," % number for number in range(24))
            scan = await db.scan(EVERYTHING)
            assert len(await scan.next_batch(100)) == 25

    asyncio.run(main())


def test_a_compaction_is_submitted_by_hand() -> None:
    async def main() -> None:
        store = memory()
        idle = {**COMPACTOR, "scheduler_options": {"min_compaction_sources": "8"}}
        async with opened(store, compactor_options=idle, manifest_poll_interval="020ms") as db:
            for number in range(2):
                await db.put(b"k", b"%d" % number)
                await db.flush_with_options(TO_L0)
            admin = slatedb.AdminBuilder(PATH, store).build()
            manifest = await admin.read_manifest(None)
            assert manifest is not None
            sources = [slatedb.SourceId.SST_VIEW(view.id) for view in manifest.l0]
            spec = slatedb.CompactionSpec.TIERED(segment=b"", sources=sources, destination=0)
            submitted = await admin.submit_compaction(spec)
            assert submitted.spec == spec
            assert submitted.status is slatedb.CompactionStatus.SUBMITTED
            assert submitted.active
            async with asyncio.timeout(60):
                while True:
                    found = await admin.read_compaction(submitted.id, None)
                    if found is None or not found.active:
                        break
                    await asyncio.sleep(0.01)  # the compactor has no event to wait for
            compacted = await admin.read_manifest(None)
            assert compacted is not None
            assert [run.id for run in compacted.compacted] == [0]
            assert compacted.l0 == []
            with pytest.raises(slatedb.Error.Invalid):
                await admin.submit_compaction(spec)

    asyncio.run(main())


def test_a_writer_collects_unreferenced_files() -> None:
    async def main() -> None:
        store = memory()
        swept = {"interval": "020ms", "min_age": "0s"}
        async with opened(store, garbage_collector_options={"manifest_options": swept}) as db:
            for number in range(4):
                await db.put(b"k", b"%d" % number)
                await db.flush_with_options(TO_L0)
            admin = slatedb.AdminBuilder(PATH, store).build()
            async with asyncio.timeout(60):
                while (await admin.list_manifests(None, None))[0].id == 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)  # the collector has no event to wait for
            assert await db.get(b"k") == b"3"

    asyncio.run(main())


class Counts(slatedb.MetricsRecorder):
    """Counters of a metrics recorder that a program supplies."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}

    def register_counter(
        self, name: str, description: str | None, labels: list[slatedb.MetricLabel]
    ) -> slatedb.Counter:
        key = name + "".join(f"|{label.key}={label.value}" for label in labels)
        self.counters[key] = 0
        return _Counter(self, key)

    def register_gauge(self, name: str, description: str | None, labels: list[slatedb.MetricLabel]) -> slatedb.Gauge:
        return slatedb.DefaultMetricsRecorder().register_gauge(name, description, labels)

    def register_up_down_counter(
        self, name: str, description: str | None, labels: list[slatedb.MetricLabel]
    ) -> slatedb.UpDownCounter:
        raise AssertionError("nothing here goes both ways")

    def register_histogram(
        self, name: str, description: str | None, labels: list[slatedb.MetricLabel], boundaries: list[float]
    ) -> slatedb.Histogram:
        raise AssertionError("nothing here is a distribution")


class _Counter(slatedb.Counter):
    def __init__(self, counts: Counts, key: str) -> None:
        self._counts, self._key = counts, key

    def increment(self, value: int) -> None:
        assert value >= 0
        self._counts.counters[self._key] += value


def test_a_recorder_of_a_programs_own_hears_of_calls_at_once() -> None:
    async def main() -> None:
        counts = Counts()
        async with opened(memory(), lambda builder: builder.with_metrics_recorder(counts)) as db:
            await db.put(b"k", b"v")
            batch = slatedb.WriteBatch()
            batch.put(b"a", b"1")
            batch.delete(b"k")
            await db.write(batch)
            transaction = await db.begin(slatedb.IsolationLevel.SNAPSHOT)
            await transaction.put(b"b", b"2")
            await transaction.commit()
            await db.get(b"a")
            await (await db.scan(EVERYTHING)).next()
            assert counts.counters["slatedb.db.write_ops"] == 4
            assert counts.counters["slatedb.db.write_batch_count"] == 3
            assert counts.counters["slatedb.db.request_count|op=get"] == 1
            assert counts.counters["slatedb.db.request_count|op=scan"] == 1
            await db.shutdown()
            assert counts.counters["slatedb.wal.wal_buffer_flushes"] > 0
            assert counts.counters["slatedb.memtable_flush.l0_flush_count"] == 1

    asyncio.run(main())


def test_the_default_recorder_knows_everything_when_it_is_asked() -> None:
    async def main() -> None:
        store, recorder = memory(), slatedb.DefaultMetricsRecorder()
        async with opened(store, lambda builder: builder.with_metrics_recorder(recorder)) as db:
            await db.put(b"k", b"v")
            await db.flush_with_options(TO_L0)
            (ssts,) = recorder.metrics_by_name("slatedb.db.l0_sst_count")
            assert ssts.value == slatedb.MetricValue.GAUGE(1)
            (flushes,) = recorder.metrics_by_name("slatedb.db.immutable_memtable_flushes")
            assert flushes.value == slatedb.MetricValue.COUNTER(1)
            reads = slatedb.DefaultMetricsRecorder()
            async with opened_reader(store, lambda builder: builder.with_metrics_recorder(reads)) as reader:
                await reader.get(b"k")
            found = reads.metric_by_name_and_labels(
                "slatedb.db.request_count", [slatedb.MetricLabel(key="op", value="get")]
            )
            assert found is not None
            assert found.value[0] == 1

    asyncio.run(main())


class FailingRecording(MetricsBridge):
    """A recorder that raises the chosen error."""

    def __init__(self) -> None:
        super().__init__(slatedb.DefaultMetricsRecorder(), Metrics())
        self.failed = asyncio.Event()

    def publish(self) -> None:
        self.failed.set()
        raise LookupError


def test_a_recorder_that_fails_stops_nothing_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale.compat.slatedb.metrics.bridge.PUBLISH_INTERVAL_S", 0.001)

    async def main() -> None:
        recording, went_on, background = FailingRecording(), asyncio.Event(), EmbeddedTasks()

        async def compact() -> None:
            await recording.failed.wait()
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            went_on.set()

        await background.start({**recording.tasks(), "compactor": compact})
        await asyncio.wait_for(went_on.wait(), 10)
        await background.stop()

    asyncio.run(main())


def test_requests_of_the_store_have_slatedbs_labels() -> None:
    async def main() -> None:
        recorder = slatedb.DefaultMetricsRecorder()
        async with opened(memory(), lambda builder: builder.with_metrics_recorder(recorder)) as db:
            await db.put(b"k", b"v")
            await db.flush()
            told = {
                name: {tuple(sorted((label.key, label.value) for label in metric.labels)) for metric in found}
                for name in ("request_count", "error_count")
                if (found := recorder.metrics_by_name(f"slatedb.object_store.{name}"))
            }
            put = (("api", "put"), ("component", "db"), ("op", "put"), ("store_type", "main"))
            assert all(put in labels for labels in told.values())
            pairs = {(dict(labels)["api"], dict(labels)["op"]) for each in told.values() for labels in each}
            assert ("put", "get") not in pairs
            assert ("get", "put") not in pairs
            assert {("get", "get"), ("delete", "delete"), ("multipart_part", "put")} <= pairs

    asyncio.run(main())


def test_the_default_recorder_counts_what_programs_count() -> None:
    recorder = slatedb.DefaultMetricsRecorder()
    label = [slatedb.MetricLabel(key="a", value="1"), slatedb.MetricLabel(key="b", value="2")]
    recorder.register_counter("c", "a counter", label).increment(3)
    recorder.register_counter("c", None, label[::-1]).increment(4)
    recorder.register_up_down_counter("u", None, []).increment(-2)
    histogram = recorder.register_histogram("h", None, [], [1.0, 2.0])
    for value in (1.0, 1.5, 9.0):
        histogram.record(value)
    counted = recorder.metric_by_name_and_labels("c", label[::-1])
    assert counted is not None
    assert (counted.value, counted.description) == (slatedb.MetricValue.COUNTER(7), "a counter")
    spread = recorder.metrics_by_name("h")[0].value[0]
    assert (spread.count, spread.sum, spread.min, spread.max) == (3, 11.5, 1.0, 9.0)
    assert spread.bucket_counts == [1, 1, 1]
    assert recorder.metric_by_name_and_labels("c", []) is None
    assert len(recorder.snapshot()) == 3


class Lines(slatedb.LogCallback):
    """The logged lines."""

    def __init__(self) -> None:
        self.records: list[slatedb.LogRecord] = []

    def log(self, record: slatedb.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def fresh_logging() -> Iterator[None]:
    """Reset logging as in a process that has not called ``init_logging``."""
    logger = logging.getLogger("shale")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.mark.usefixtures("fresh_logging")
def test_log_lines_reach_the_callback() -> None:
    lines = Lines()
    slatedb.init_logging(slatedb.LogLevel.INFO, lines)
    with pytest.raises(slatedb.Error.Invalid, match="logging already initialized"):
        slatedb.init_logging(slatedb.LogLevel.INFO, None)

    async def main() -> None:
        async with opened(memory()):
            pass

    asyncio.run(main())
    opening = next(record for record in lines.records if "opening SlateDB database" in record.message)
    assert f"path={PATH}" in opening.message
    assert opening.level is slatedb.LogLevel.INFO
    assert opening.target.startswith("shale")
    assert opening.file
    assert opening.line
    assert any(record.message.startswith("db.opened ") for record in lines.records)
    assert all(record.level is not slatedb.LogLevel.DEBUG for record in lines.records)
