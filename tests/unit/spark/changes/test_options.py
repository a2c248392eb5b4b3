"""The options of a stream of changes."""

import pickle

import pytest

from shale.engine.wal.feed.offset import Edge, FromSeq
from shale.engine.wal.feed.plan import FeedPart
from shale.engine.wal.feed.reading import OnGap
from shale.errors import InvalidRequestError
from shale_spark.changes.options import ChangesOptions, is_changes

URL = {"url": "file:///data/orders"}


def test_every_option_is_parsed() -> None:
    options = ChangesOptions.parse(
        {
            **URL,
            "Changes": "seq:7",
            "max_files_per_trigger": "all",
            "retain": "audit",
            "retain_for": "2h",
            "on_gap": "skip",
            "partition_bytes": "1MiB",
        }
    )
    assert options.start == FromSeq(7)
    assert (options.max_files, options.retain, options.retain_for_ms) == (None, "audit", 7_200_000)
    assert (options.on_gap, options.partition_bytes) == (OnGap.SKIP, 1 << 20)
    assert pickle.loads(pickle.dumps(options)) == options


def test_defaults() -> None:
    options = ChangesOptions.parse({**URL, "changes": "latest"})
    assert (options.start, options.max_files, options.retain) == (Edge.LATEST, 1000, None)
    assert options.on_gap is OnGap.FAIL
    assert is_changes({"CHANGES": "latest"})
    assert not is_changes(URL)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "changes"),
        ({"changes": "tomorrow"}, "none of latest"),
        ({"changes": "latest", "max_files_per_trigger": "0"}, "max_files_per_trigger"),
        ({"changes": "latest", "retain_for": "1s"}, "retain_for"),
        ({"changes": "latest", "on_gap": "shrug"}, "on_gap: 'shrug' is none of fail, skip"),
        ({"changes": "latest", "partition_bytes": "0"}, "partition_bytes"),
        ({"changes": "latest", "checkpoint": "x"}, "checkpoint: no such option"),
    ],
)
def test_what_makes_no_sense_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        ChangesOptions.parse({**URL, **given})


def test_a_part_travels_to_its_task() -> None:
    pytest.importorskip("pyspark")
    from shale_spark.changes.reader import ChangesPartition

    part = FeedPart(3, 9, 17, is_inside=True)
    assert pickle.loads(pickle.dumps(ChangesPartition(part))).part == part


def test_a_stream_needs_a_beginning() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import StructType

    from shale_spark.source.data_source import ShaleDataSource

    source = ShaleDataSource(URL)
    assert "wal_id" not in source.schema()
    with pytest.raises(InvalidRequestError, match=r'option\("changes"'):
        source.streamReader(StructType())
    assert ShaleDataSource({**URL, "changes": "latest"}).schema().endswith("op string, wal_id bigint")
