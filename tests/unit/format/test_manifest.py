"""Manifests: both versions, round trips, and what a reader must refuse."""

from collections.abc import Sequence

import pytest
from hypothesis import given

from shale.errors import CorruptionError, InvalidVersion
from shale.format.manifest import decode_manifest, encode_manifest
from shale.format.sst.info import write_sst_info
from shale.format.sst_references import write_range, write_sst_v2
from shale.types import (
    UNBOUNDED,
    Epoch,
    KeyRange,
    Manifest,
    RunId,
    SortedRun,
    Sst,
    SstInfo,
    SstView,
    Tree,
    Ulid,
    excluded,
    included,
)
from tests.unit.format.table_writer import TableWriter
from tests.unit.format.values import manifests

SST = Sst(id=Ulid(5 << 80), info=SstInfo(first_entry=b"b", last_entry=b"m", index_offset=100, index_len=10))
DOCUMENTED = bytes.fromhex(
    "0002 30000000 000000000000 26003000 00000000070020000000000000000000 08000c00100028001400000000001800"
    "1c00 26000000 00000001 4c000000440000003c000000 30000000180000002c000000 0100000000000000"
    "0000000000000080 0d000000 01000000000000000000000000 000000"
    "00000000 00000000 00000000 00000000 00000000"
)


@given(manifests())
def test_round_trip(manifest: Manifest) -> None:
    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_the_documented_manifest() -> None:
    manifest = Manifest(writer_epoch=Epoch(1))
    assert decode_manifest(DOCUMENTED) == manifest
    assert encode_manifest(manifest) == DOCUMENTED


def write_v1(*, with_tracker: bool = True) -> bytes:
    """Write a manifest as releases before 0.17 did."""
    writer = TableWriter()

    def table(sst: Sst, visible: KeyRange | None, version: int | None) -> int:
        id_ = writer.ulid(sst.id)
        info = write_sst_info(writer.builder, sst.info)
        return writer.table("CompactedSsTable", (id_, info, write_range(writer.builder, visible), version))

    l0 = writer.references([table(SST, None, None)])
    watermark = writer.ulid(Ulid(7))
    run = writer.references([table(SST, KeyRange(included(b"c"), excluded(b"d")), 2)])
    runs = writer.references([writer.table("SortedRun", (3, run))])
    checkpoints = writer.references([])
    uri = writer.string("s3://elsewhere/wal")
    tracker = writer.blob(b"\x01" + bytes(12)) if with_tracker else 0
    values = (0, 0, 1, 8, 9, 10, 11, watermark, l0, runs, -5, checkpoints, 77, uri, 66, tracker)
    return b"\x00\x01" + writer.finish(writer.table("ManifestV1", values))


@pytest.mark.parametrize("with_tracker", [True, False])
def test_version_1_is_read_and_written_as_2(with_tracker: bool) -> None:
    manifest = decode_manifest(write_v1(with_tracker=with_tracker))
    old = Sst(id=SST.id, info=SST.info, format_version=1)
    window = KeyRange(included(b"c"), excluded(b"d"))
    assert manifest.tree == Tree(
        l0=(SstView(id=SST.id, sst=old),),
        compacted=(SortedRun(id=RunId(3), ssts=(SstView(id=SST.id, sst=SST, visible_range=window),)),),
        last_compacted_l0_sst_view_id=Ulid(7),
        last_compacted_l0_sst_id=Ulid(7),
    )
    assert (manifest.writer_epoch, manifest.compactor_epoch) == (8, 9)
    assert (manifest.replay_after_wal_id, manifest.next_wal_sst_id) == (10, 12)
    assert (manifest.last_l0_clock_tick, manifest.last_l0_seq, manifest.recent_snapshot_min_seq) == (-5, 77, 66)
    assert manifest.wal_object_store_uri == "s3://elsewhere/wal"
    assert encode_manifest(manifest)[:2] == b"\x00\x02"


@pytest.mark.parametrize("version", [0, 3, 0xFFFF])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(InvalidVersion, match=f"version {version}") as caught:
        decode_manifest(version.to_bytes(2, "big") + DOCUMENTED[2:], path="db/manifest/1")
    assert str(caught.value).startswith("db/manifest/1 at byte 0")


def write_v2(
    *,
    bounds: tuple[tuple[bytes | None, int], tuple[bytes | None, int]] | None = None,
    listed: Sequence[Sst] = (SST,),
    tracker: bytes | None = None,
    with_checkpoints: bool = True,
    last_seen: int = 0,
) -> bytes:
    """Write a manifest with one view and one invalid field."""
    writer = TableWriter()
    ssts = writer.references([write_sst_v2(writer.builder, sst) for sst in listed])
    sst_id = writer.ulid(SST.id)
    visible = 0
    if bounds is not None:
        ends = []
        for key, kind in bounds:
            stored = writer.blob(key)
            ends.append(writer.table("BytesBound", (stored, kind)))
        visible = writer.table("BytesRange", ends)
    id_ = writer.ulid(SST.id)
    l0 = writer.references([writer.table("CompactedSsTableView", (id_, sst_id, visible))])
    runs = writer.references([])
    checkpoints = writer.references([]) if with_checkpoints else 0
    stored_tracker = writer.blob(tracker)
    values = (0, 0, 1, 0, 0, 0, last_seen, 0, ssts, l0, runs, 0, checkpoints, 0, 0, stored_tracker, 0, 0)
    return b"\x00\x02" + writer.finish(writer.table("ManifestV2", values))


def test_the_helper_writes_a_good_manifest() -> None:
    assert decode_manifest(write_v2(bounds=((b"c", 2), (None, 1)))).tree.l0 == (
        SstView(id=SST.id, sst=SST, visible_range=KeyRange(included(b"c"), UNBOUNDED)),
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(write_v2(listed=()), "does not list", id="view of an unlisted SST"),
        pytest.param(write_v2(bounds=((b"", 1), (None, 1))), "kind 1 with a key", id="unbounded with an empty key"),
        pytest.param(write_v2(bounds=((None, 2), (None, 1))), "kind 2 without a key", id="included without a key"),
        pytest.param(write_v2(bounds=((b"c", 0), (None, 1))), "kind 0", id="bound of kind 0"),
        pytest.param(write_v2(bounds=((b"c", 4), (None, 1))), "kind 4", id="bound of kind 4"),
        pytest.param(write_v2(bounds=((b"c", 3), (None, 1))), "excluded", id="start excluded"),
        pytest.param(write_v2(bounds=((b"x", 2), (None, 1))), "shows no key", id="range beside the SST"),
        pytest.param(write_v2(tracker=b""), "tracker", id="empty tracker"),
        pytest.param(write_v2(with_checkpoints=False), "checkpoints is absent", id="no checkpoints vector"),
        pytest.param(write_v2(last_seen=2**64 - 1), "WAL id", id="last WAL id"),
        pytest.param(b"", "no version", id="empty file"),
        pytest.param(b"\x00\x02", "outside the buffer", id="nothing after the version"),
    ],
)
def test_contradictions_are_corruption(data: bytes, message: str) -> None:
    with pytest.raises(CorruptionError, match=message) as caught:
        decode_manifest(data, path="db/manifest/7")
    assert caught.value.path == "db/manifest/7"
    assert caught.value.offset is not None


@pytest.mark.parametrize("watermark", [0, 1, 2**64 - 1, 2**64, 2**127])
def test_ids_with_an_empty_half(watermark: int) -> None:
    manifest = Manifest(tree=Tree(last_compacted_l0_sst_view_id=Ulid(watermark)))
    assert decode_manifest(encode_manifest(manifest)) == manifest
