"""Manifests read by columns against the plain reader, also damaged ones."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import CorruptionError
from shale.format.manifest import decode_by_columns, decode_manifest, decode_plain, encode_manifest
from shale.types import KeyRange, Manifest, RunId, SortedRun, Sst, SstInfo, SstView, Tree, Ulid
from tests.unit.format.values import manifests


@given(manifests())
def test_equal_to_the_plain_reader(manifest: Manifest) -> None:
    data = encode_manifest(manifest)
    assert decode_by_columns(data) == decode_plain(data) == manifest


@given(manifests(), st.integers(0, 2**32), st.integers(1, 4))
def test_accepts_nothing_that_the_plain_reader_refuses(manifest: Manifest, seed: int, damages: int) -> None:
    data, rng = bytearray(encode_manifest(manifest)), Random(seed)
    for _ in range(damages):
        data[rng.randrange(2, len(data))] = rng.choice((0, 1, 4, 127, 128, 255, rng.randrange(256)))
    read = decode_by_columns(bytes(data))
    if read is not None:
        assert read == decode_plain(bytes(data))


def large() -> bytes:
    ssts = [
        Sst(id=Ulid(number + 1), info=SstInfo(first_entry=b"%04d" % number, last_entry=b"%04dz" % number, index_len=9))
        for number in range(200)
    ]
    run = SortedRun(id=RunId(1), ssts=tuple(map(SstView.identity, ssts)))
    return encode_manifest(Manifest(tree=Tree(compacted=(run,))))


@pytest.mark.slow
def test_an_offset_beyond_the_buffer_at_any_place_is_corruption() -> None:
    """Also that of a visible range, which the generated code would read as a number of more than 32 bits."""
    ssts = [
        Sst(id=Ulid(number + 1), info=SstInfo(first_entry=b"%04d" % number, last_entry=b"%04dz" % number, index_len=9))
        for number in range(70)
    ]
    views = [SstView.identity(sst) for sst in ssts]
    views[3] = SstView(id=Ulid(1000), sst=ssts[3], visible_range=KeyRange.half_open(b"0003", b"0004"))
    data = encode_manifest(Manifest(tree=Tree(l0=tuple(views))))
    for place in range(4, len(data) - 4, 4):
        damaged = data[:place] + b"\xff" * 4 + data[place + 4 :]
        with suppress(CorruptionError):
            decode_manifest(damaged)


def test_an_identity_view_shares_the_id_of_its_sst() -> None:
    views = decode_manifest(large()).tree.compacted[0].ssts
    assert all(view.id is view.sst.id for view in views)


def test_the_plain_reader_explains_a_damaged_one() -> None:
    data = bytearray(large())
    place = data.index(b"0100z")
    data[place - 4 : place] = b"\xff\xff\xff\x00"
    with pytest.raises(CorruptionError, match="a vector claims 16777215 elements") as caught:
        decode_manifest(data, path="db/manifest/1")
    assert caught.value.path == "db/manifest/1"
    assert caught.value.offset == place - 4
