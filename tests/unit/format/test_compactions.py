"""Compactions files: round trips, version 1, and what a reader must refuse."""

import pytest
from hypothesis import given

from shale.errors import CorruptionError, InvalidVersion
from shale.format.compactions import decode_compactions, encode_compactions
from shale.types import Compaction, Compactions, DrainSpec, Epoch, TieredSpec, Ulid
from tests.unit.format.table_writer import TableWriter
from tests.unit.format.values import compactions

DOCUMENTED = bytes.fromhex(
    "0002 10000000 00000000 0800140008000400 08000000 10000000 0100000000000000 00000000 00000000"
)


@given(compactions())
def test_round_trip(value: Compactions) -> None:
    assert decode_compactions(encode_compactions(value)) == value


def test_a_drain_of_nothing_in_particular_is_a_mistake_of_its_submitter_and_no_damage() -> None:
    """It breaks V2, and one Failed entry must not prevent all readers from reading the file."""
    value = Compactions(entries=(Compaction(id=Ulid(1), spec=DrainSpec(segment=b"", l0_view_ids=(Ulid(2),))),))
    assert decode_compactions(encode_compactions(value)) == value


def test_the_documented_file() -> None:
    assert encode_compactions(Compactions(compactor_epoch=Epoch(1))) == DOCUMENTED
    assert decode_compactions(DOCUMENTED) == Compactions(compactor_epoch=Epoch(1))
    assert len(encode_compactions(Compactions())) == 26


def write(
    *,
    version: int = 1,
    ids: tuple[int, ...] = (1,),
    spec_type: int = 1,
    status: int = 0,
    ctx_type: int = 0,
    runs: tuple[int, ...] = (),
) -> bytes:
    """Write tiered compactions that name SSTs in the deprecated field."""
    writer = TableWriter()
    entries = []
    for number in ids:
        id_ = writer.ulid(Ulid(number))
        ssts = writer.ulids([Ulid(8), Ulid(9)])
        stored_runs = writer.u32s(runs) if runs else 0
        spec = writer.table("TieredCompactionSpec", (ssts, stored_runs, 0, 0, 0))
        ctx = spec if ctx_type else 0
        entries.append(writer.table("Compaction", (id_, spec_type, spec, status, 0, 0, ctx_type, ctx)))
    root = writer.table("CompactionsV1", (3, writer.references(entries)))
    return version.to_bytes(2, "big") + writer.finish(root)


@pytest.mark.parametrize(("runs", "destination"), [((), 0), ((7, 4, 5), 4)])
def test_version_1_goes_to_the_oldest_run(runs: tuple[int, ...], destination: int) -> None:
    (entry,) = decode_compactions(write(runs=runs)).entries
    assert isinstance(entry.spec, TieredSpec)
    assert entry.spec.destination == destination
    assert entry.spec.l0_view_ids == (8, 9)
    assert entry.spec.segment == b""


def test_entries_ascend_by_id() -> None:
    assert [entry.id for entry in decode_compactions(write(ids=(3, 1, 2))).entries] == [1, 2, 3]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (write(spec_type=3), "unknown kind of compaction 3"),
        (write(status=6), "unknown compaction status 6"),
        (write(ctx_type=2), "unknown kind of compaction context 2"),
        (write(ids=(1, 1)), "same id"),
        (b"\x00", "no version"),
    ],
)
def test_contradictions_are_corruption(data: bytes, message: str) -> None:
    with pytest.raises(CorruptionError, match=message) as caught:
        decode_compactions(data, path="db/compactions/7")
    assert caught.value.path == "db/compactions/7"


def test_other_versions_are_refused() -> None:
    with pytest.raises(InvalidVersion, match="version 3"):
        decode_compactions(write(version=3))
