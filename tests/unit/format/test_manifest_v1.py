"""Manifests of version 1 as SlateDB 0.15 wrote them: golden bytes, round trips, and what they cannot hold."""

from dataclasses import replace

import pytest
from hypothesis import given

from shale.errors import ManifestNeedsVersion2
from shale.format.manifest import decode_manifest, encode_manifest, is_lossless
from shale.types import (
    UNBOUNDED,
    CasMode,
    ExclusiveModes,
    KeyRange,
    Manifest,
    RunId,
    Segment,
    SortedRun,
    Sst,
    SstInfo,
    SstView,
    Tree,
    Ulid,
    included,
)
from tests.unit.format.values import manifests

EMPTY_L0 = bytes.fromhex(
    "00012c00000000000000240054000000000007001c0024002c00340008000c0010003c001400440000004c00180024000000"
    "000000018001000094010000b4000000640000003c0000000200000000000000010000000000000005000000000000000500"
    "0000000000009ea8a208a2010000040000000000000004000000000000001d00000001010000000000000100000000000000"
    "0100000001000000006b04423700000001000000100000000c001c000400100008000c000c00000020000000be45046b3a42"
    "046b0a00000000000000000000000800140004000c0008000000af4568738c3eab119234b436a237b686010000000c000000"
    "0800080000000400080000000400000001000000100000000c00120008000c00000006000c00000000000200700000002000"
    "000000001a003c0008001000180020000000000000000c002800300007001a000000000000013c0000003000000023020000"
    "00000000340000000000000023020000000000005702000000000000540000000000000000000000040000006b3032320400"
    "00006b303030e8ffffffe96b68b3a208a201595f8d89590e8bbe000000000800180004000c00080000000695b7a8a208a201"
    "1abeb99beeb648b40000000000000000"
)
"""Written by SlateDB 0.15 after a compaction of all L0s; with a checkpoint."""
ONE_L0 = bytes.fromhex(
    "00012c00000000000000240058000000000007001c0024002c00340008000c0010003c001400440000004c00180024000000"
    "000000016801000078010000b80000006c000000400000000200000000000000010000000000000007000000000000000700"
    "00000000000066b8a208a2010000050000000000000005000000000000000000000021000000010200000000000002000000"
    "0000000001820000000002000000006b044237820000000001000000100000000c001c000400100008000c000c0000001800"
    "0000be45046b3a42046b0a000000000000000000000060ffffffaf4568738c3eab119234b436a237b6860000000001000000"
    "0c0000000800080000000400080000000400000001000000100000000c00100008000c00000006000c000000000002005c00"
    "0000040000005affffff000000013c0000003000000023020000000000003400000000000000230200000000000057020000"
    "00000000540000000000000000000000040000006b303232040000006b3030300800180004000c0008000000e96b68b3a208"
    "a201595f8d89590e8bbe0000000060ffffff0695b7a8a208a2011abeb99beeb648b401000000100000000c00120008000c00"
    "000006000c00000000000200780000002000000000001a003c0008001000180020000000000000000c002800300007001a00"
    "0000000000013c000000300000001e0000000000000034000000000000001e00000000000000520000000000000054000000"
    "0000000000000000010000007a000000010000007a0000000800140004000c000800000047606cb8a208a201272a566304a7"
    "8485"
)
"""Written by SlateDB 0.15 after the next flush."""
SST = Sst(id=Ulid(5 << 80), info=SstInfo(first_entry=b"b", last_entry=b"m", index_offset=100, index_len=10))
OTHER_SST = replace(SST, id=Ulid(6 << 80))


def version_1_of(manifest: Manifest) -> Manifest:
    """Return the manifest without what version 1 cannot hold."""
    seen: set[Ulid] = set()

    def views(cut: tuple[SstView, ...]) -> tuple[SstView, ...]:
        kept = []
        for view in cut:
            if view.sst.id not in seen:
                seen.add(view.sst.id)
                kept.append(replace(view, id=view.sst.id))
        return tuple(kept)

    tree = manifest.tree
    tree = replace(
        tree,
        l0=views(tree.l0),
        compacted=tuple(replace(run, ssts=views(run.ssts)) for run in tree.compacted),
        last_compacted_l0_sst_id=tree.last_compacted_l0_sst_view_id,
    )
    return replace(manifest, tree=tree, segments=(), segment_extractor_name=None)


@given(manifests().map(version_1_of))
def test_round_trip(manifest: Manifest) -> None:
    data = encode_manifest(manifest, 1)
    assert data[:2] == b"\x00\x01"
    assert decode_manifest(data) == manifest
    assert is_lossless(manifest, 1)


@given(manifests().map(version_1_of))
def test_through_version_2_and_back(manifest: Manifest) -> None:
    """Version 2 does not store the SST's id of the watermark; that of the view is the same."""
    assert encode_manifest(decode_manifest(encode_manifest(manifest)), 1) == encode_manifest(manifest, 1)


@pytest.mark.parametrize("golden", [EMPTY_L0, ONE_L0])
def test_the_bytes_are_those_of_slatedb(golden: bytes) -> None:
    manifest = decode_manifest(golden)
    assert encode_manifest(manifest, 1) == golden
    assert manifest.tree.last_compacted_l0_sst_view_id == Ulid.parse("01M84A5A5QJM3B8J5PXTDVKFGT")


def test_the_watermark_stays_when_l0_is_empty() -> None:
    """A compactor that read version 2 knows only the view of the watermark."""
    known = Manifest(tree=Tree(last_compacted_l0_sst_view_id=Ulid(7)))
    assert not is_lossless(known, 1)
    assert decode_manifest(encode_manifest(known, 1)).tree == Tree(
        last_compacted_l0_sst_view_id=Ulid(7), last_compacted_l0_sst_id=Ulid(7)
    )


def test_a_range_of_an_sst_and_the_wal_store_are_kept() -> None:
    view = SstView(id=SST.id, sst=SST, visible_range=KeyRange(included(b"c"), UNBOUNDED))
    manifest = Manifest(tree=Tree(l0=(view,)), wal_object_store_uri="s3://elsewhere/wal")
    assert decode_manifest(encode_manifest(manifest, 1)) == manifest


@pytest.mark.parametrize(
    ("manifest", "obstacle"),
    [
        pytest.param(Manifest(segment_extractor_name="fixed:2"), "extractor 'fixed:2'", id="extractor"),
        pytest.param(Manifest(segments=(Segment(prefix=b"ab", tree=Tree()),)), "segment 6162", id="segment"),
        pytest.param(
            Manifest(exclusive=ExclusiveModes(max_parallel_writes=4)), "max_parallel_writes=4", id="parallel WAL"
        ),
        pytest.param(Manifest(exclusive=ExclusiveModes(cas=CasMode.TWO_PHASE)), "cas=two-phase", id="two-phase"),
        pytest.param(
            Manifest(tree=Tree(l0=(SstView(id=Ulid(7), sst=SST),))), f"{Ulid(7)} of the SST {SST.id}", id="view"
        ),
        pytest.param(
            Manifest(
                tree=Tree(
                    l0=(SstView(id=SST.id, sst=SST),),
                    compacted=(
                        SortedRun(id=RunId(1), ssts=(SstView.identity(OTHER_SST), SstView(id=SST.id, sst=SST))),
                    ),
                )
            ),
            f"two views of the SST {SST.id}",
            id="an SST twice",
        ),
    ],
)
def test_what_version_1_cannot_hold_is_named(manifest: Manifest, obstacle: str) -> None:
    with pytest.raises(ManifestNeedsVersion2, match=obstacle):
        encode_manifest(manifest, 1)
    assert decode_manifest(encode_manifest(manifest)) == manifest
