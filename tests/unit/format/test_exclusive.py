"""The envelope of manifests that SlateDB must not open."""

from dataclasses import replace

import pytest

from shale.errors import CorruptionError, InvalidVersion
from shale.format.exclusive import open_exclusive, seal_exclusive
from shale.format.manifest import decode_manifest, encode_manifest
from shale.types import CasMode, ExclusiveModes, Manifest, WalId

MODES = ExclusiveModes(max_parallel_writes=4, cas=CasMode.TWO_PHASE)
GOLDEN = b'\xf0\xf2\x00\x00\x00\x35{"base":2,"cas":"two-phase","max_parallel_writes":4}'


def test_the_envelope_has_these_bytes() -> None:
    assert seal_exclusive(MODES, b"manifest") == GOLDEN[:5] + bytes([len(GOLDEN) - 6]) + GOLDEN[6:] + b"manifest"


def test_the_manifest_inside_is_of_version_2() -> None:
    plain = Manifest(replay_after_wal_id=WalId(7), next_wal_sst_id=WalId(9))
    data = encode_manifest(replace(plain, exclusive=MODES))
    modes, inner = open_exclusive(data)
    assert modes == MODES
    assert bytes(inner) == encode_manifest(plain)
    assert decode_manifest(data) == replace(plain, exclusive=MODES)


def test_the_backend_of_the_wal_is_in_the_envelope_if_there_is_one() -> None:
    modes = ExclusiveModes(wal_backend="orders-log")
    data = encode_manifest(Manifest(exclusive=modes))
    assert b'{"base":2,"cas":"native","max_parallel_writes":1,"wal_backend":"orders-log"}' in data
    assert decode_manifest(data).wal_backend == "orders-log"


def test_other_manifests_have_no_envelope() -> None:
    data = encode_manifest(Manifest())
    assert open_exclusive(data) == (None, data)


def test_slatedb_knows_only_versions_1_and_2() -> None:
    assert int.from_bytes(encode_manifest(Manifest(exclusive=MODES))[:2], "big") not in {1, 2}


@pytest.mark.parametrize(
    "text",
    [
        b'{"base":3,"max_parallel_writes":1}',
        b'{"base":2,"max_parallel_writes":2,"leases":true}',
        b'{"base":2,"cas":"three-phase"}',
        b'{"base":2,"cas":["native"]}',
    ],
)
def test_a_mode_of_a_later_release_is_refused(text: bytes) -> None:
    data = b"\xf0\xf2" + len(text).to_bytes(4, "big") + text + encode_manifest(Manifest())
    with pytest.raises(InvalidVersion, match="later release"):
        decode_manifest(data, path="db/manifest/1")


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\x00\x00\x00",
        b"\x00\x00\x00\x09{}",
        b"\xff\xff\xff\xff{}",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x04\xff\xff\xff\xff",
        b"\x00\x00\x0f\xa0" + b"[" * 4000,
        b'\x00\x00\x00\x22{"base":2,"max_parallel_writes":0}',
        b'\x00\x00\x00\x25{"base":2,"max_parallel_writes":true}',
        b'\x00\x00\x00\x1c{"base":2,"wal_backend":""} ',
        b'\x00\x00\x00\x1b{"base":2,"wal_backend":7} ',
    ],
)
def test_a_malformed_envelope_names_the_object(rest: bytes) -> None:
    with pytest.raises(CorruptionError, match="db/manifest/1") as caught:
        decode_manifest(b"\xf0\xf2" + rest, path="db/manifest/1")
    assert not isinstance(caught.value, InvalidVersion)
