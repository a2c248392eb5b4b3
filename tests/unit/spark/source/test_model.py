"""Any database, split into any number of tasks and read with any filters, returns the model's rows, each once."""

import threading
from dataclasses import replace

import anyio
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from shale.types import Entry, KeyRange
from shale_spark.source.filters import KeySet, push_filters
from shale_spark.source.options import SparkReadOptions
from shale_spark.source.plan_reader import next_lookup_count, read_rows
from shale_spark.source.planner import plan_read
from shale_spark.source.read_plan import ReadPlan
from tests.unit.spark.source.databases import Database, entries_of

BINARY = [EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
HOLDS = {
    EqualTo: lambda key, value: key == value,
    GreaterThan: lambda key, value: key > value,
    GreaterThanOrEqual: lambda key, value: key >= value,
    LessThan: lambda key, value: key < value,
    LessThanOrEqual: lambda key, value: key <= value,
    In: lambda key, value: key in value,
    StringStartsWith: lambda key, value: key.startswith(value),
}


def random_filters(database: Database) -> list[Filter]:
    """Return up to three conditions on existing and absent keys."""
    rng = database.rng
    keys = [*(entry.key for entry in database.history), b"k", b"absent", b"zzz"]
    filters: list[Filter] = []
    for _ in range(rng.randrange(3)):
        match rng.randrange(4):
            case 0:
                filters.append(In(("key",), (*rng.choices(keys, k=rng.randrange(9)), None)))
            case 1:
                filters.append(StringStartsWith(("key",), rng.choice(keys)[: rng.randrange(4)].decode()))
            case _:
                filters.append(rng.choice(BINARY)(("key",), rng.choice(keys)))
    return filters


def satisfies(key: bytes, filters: list[Filter], *, is_text: bool) -> bool:
    """Evaluate the conditions as Spark does."""
    return all(
        HOLDS[type(each)](key.decode() if is_text else key, each.value)  # type: ignore[attr-defined]
        for each in filters
    )


@pytest.mark.parametrize("seed", range(30))
def test_every_row_once(seed: int) -> None:
    """Also if each task replays the WAL, in segments, and with tasks of a block or two."""
    database = Database(seed)
    rng = database.rng

    async def scenario() -> None:
        await database.fill(rng.choice((0, 3, 60, 900)), segmented=seed % 2 == 0)
        low, high = sorted(rng.choices([b"", b"k1", b"k2", b"k5", b"k9", b"z"], k=2))
        options = SparkReadOptions(
            where=database.where,
            key_range=KeyRange.half_open(*rng.choice([(None, None), (low or None, high), (low or None, None)])),
            partition_bytes=rng.choice((700, 3000, 1 << 20)),
            tail_bytes=rng.choice((0, 1 << 20)),
        )
        filters = random_filters(database)
        is_text = any(isinstance(each, StringStartsWith) for each in filters)
        if is_text:
            filters = [each if isinstance(each, StringStartsWith) else _as_text(each) for each in filters]
        wanted, left = push_filters(filters, KeySet(options.key_range), key_is_text=is_text)
        assert left == []
        plans = (await plan_read(options, wanted, database.env)).plans
        expected = [
            entry
            for key, entry in database.live().items()
            if options.key_range.contains(key) and satisfies(key, filters, is_text=is_text)
        ]
        assert await entries_of(plans, database.env) == expected
        if len(expected) > 200 and options.partition_bytes == 700:
            assert len(plans) > 5

    anyio.run(scenario)


def _as_text(each: Filter) -> Filter:
    value = each.value  # type: ignore[attr-defined]
    if isinstance(value, tuple):
        return In(each.attribute, tuple(None if key is None else key.decode() for key in value))  # type: ignore[attr-defined]
    return type(each)(each.attribute, value.decode())  # type: ignore[attr-defined,call-arg]


def test_tasks_are_about_as_large_as_asked_for() -> None:
    """The largest task reads at most twice its share, plus a group of blocks."""
    database = Database(7)

    async def scenario() -> None:
        await database.fill(3000, value_bytes=100, in_wal=False)
        options = SparkReadOptions(where=database.where, partition_bytes=16_000)
        plans = (await plan_read(options, KeySet(), database.env)).plans
        assert len(plans) >= 8
        sizes = [sum(len(entry.value) for entry in await entries_of([plan], database.env)) for plan in plans]
        assert max(sizes) < 2 * sum(sizes) / len(sizes) + 4000

    anyio.run(scenario)


def test_a_plan_is_small() -> None:
    """A task gets the part of the manifest that it needs."""
    database = Database(7)

    async def scenario() -> None:
        await database.fill(3000, value_bytes=100, in_wal=False)
        options = SparkReadOptions(where=database.where, partition_bytes=4000)
        plans = (await plan_read(options, KeySet(), database.env)).plans
        (whole,) = (await plan_read(replace(options, partition_bytes=1 << 30), KeySet(), database.env)).plans
        assert max(len(plan.manifest.ssts()) for plan in plans) < len(whole.manifest.ssts())
        assert max(len(plan.encode()) for plan in plans) < 4000

    anyio.run(scenario)


def test_single_keys_are_looked_up_and_not_scanned() -> None:
    """An equality, or a list of keys, reads blocks and no ranges."""
    database = Database(3)

    async def scenario() -> None:
        await database.fill(900)
        live = database.live()
        keys = [*list(live)[::7], b"absent"]
        wanted = KeySet().among(keys)
        plans = (await plan_read(SparkReadOptions(where=database.where), wanted, database.env)).plans
        assert [plan.lookups for plan in plans] == [tuple(sorted(keys))]
        found: list[Entry] = await entries_of(plans, database.env)
        assert found == [live[key] for key in sorted(keys) if key in live]

    anyio.run(scenario)


def test_large_values_are_looked_up_one_by_one() -> None:
    """Memory is bounded by the values held at once; small values are read concurrently."""
    mib = 1 << 20
    assert [next_lookup_count(8, 8 * size) for size in (0, 100, mib, 4 * mib, 64 * mib)] == [16, 16, 16, 8, 1]
    assert next_lookup_count(64, 0) == 64
    assert next_lookup_count(1, 64 * mib) == 1
    assert next_lookup_count(1, mib) == 2, "it grows again"


def test_a_task_closed_early_leaves_no_thread() -> None:
    """A query with a limit stops early."""
    database = Database(5)

    async def planned() -> ReadPlan:
        await database.fill(900)
        return (await plan_read(SparkReadOptions(where=database.where), KeySet(), database.env)).plans[0]

    plan = anyio.run(planned)
    before = threading.active_count()
    rows = read_rows(plan)
    assert len(next(rows))
    rows.close()
    assert threading.active_count() <= before
    assert sum(map(len, read_rows(plan))) == len(database.live())
