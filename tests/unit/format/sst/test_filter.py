"""Hashes, bloom filters and the filter block."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import CorruptionError, InvalidRequestError
from shale.format.sst.bloom import decode_bloom, encode_bloom, num_probes
from shale.format.sst.filter import decode_filters, encode_filters, hash_keys
from shale.format.sst.filter_policy import BloomPolicy, DelimitedPrefix, FixedPrefix
from shale.format.sst.siphash import siphash13
from shale.types import FilterFormat


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 0xD1FBA762150C532C),
        (b"a", 0x407448D2B89B1813),
        (b"hello", 0xE2E77B41CB4E1F9E),
        (b"0123456", 0x810AAF7ACF670379),
        (b"01234567", 0xDA3DCEDF84EA6CC6),
        (b"user/000/name", 0xE4EA9F7071413488),
    ],
)
def test_siphash_gives_the_documented_values(text: bytes, expected: int) -> None:
    assert siphash13(text) == expected


@pytest.mark.parametrize(("bits", "probes"), [(10, 6), (8, 5), (12, 8), (16, 11), (20, 13), (1, 0)])
def test_probes_are_computed_in_single_precision(bits: int, probes: int) -> None:
    assert num_probes(bits) == probes


def test_the_documented_block() -> None:
    hashes = hash_keys([b"alpha", b"alpha", b"beta", b"gamma"])
    block = encode_filters([("_bf", encode_bloom(hashes, 10))])
    assert block.hex() == "000100035f6266000000000000000700068397280359"


@given(st.lists(st.binary(max_size=20), max_size=200), st.integers(1, 24))
def test_nothing_that_was_added_is_ever_denied(keys: list[bytes], bits_per_key: int) -> None:
    bloom = decode_bloom(encode_bloom(hash_keys(keys), bits_per_key))
    assert all(bloom.may_contain(key) for key in keys)


def test_one_in_a_hundred_is_a_false_alarm() -> None:
    keys = [b"key%06d" % number for number in range(4_000)]
    bloom = decode_bloom(encode_bloom(hash_keys(keys[:2_000]), 10))
    assert sum(bloom.may_contain(key) for key in keys[2_000:]) < 40


def test_a_filter_without_bits_denies_everything_and_one_without_probes_nothing() -> None:
    assert not decode_bloom(encode_bloom(np.zeros(0, np.uint64), 10)).may_contain(b"a")
    assert decode_bloom(encode_bloom(hash_keys([b"b"]), 1)).may_contain(b"a")


def test_policy_names() -> None:
    first4 = FixedPrefix("first4", 4)
    assert BloomPolicy().name == "_bf"
    assert BloomPolicy(prefix_extractor=first4).name == "_bf:p=first4"
    assert BloomPolicy(prefix_extractor=first4, whole_key=False).name == "_bf:p=first4:wh=0"


def test_unknown_filters_are_skipped_and_legacy_is_one_plain_filter() -> None:
    data = encode_bloom(hash_keys([b"a"]), 10)
    filters = decode_filters(encode_filters([("range", b"?"), ("_bf", data)]), FilterFormat.COMPOSITE)
    assert [named.name for named in filters.filters] == ["_bf"]
    assert not filters.may_contain_key(b"zzz")
    legacy = decode_filters(data, FilterFormat.LEGACY)
    assert legacy.may_contain_key(b"a")
    assert not legacy.may_contain_key(b"zzz")


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x00",
        b"\x00\x01",
        b"\xff\xff\x00\x00",
        b"\x00\x01\x00\x03_bf\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x00\x01\x00\x03_bf\x00\x00\x00\x00\x00\x00\x00\x01\x00",
        b"\x00\x00tail",
    ],
)
def test_lengths_that_do_not_add_up_are_corrupt(block: bytes) -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_filters(block, FilterFormat.COMPOSITE, path="x.sst", offset=7)
    assert (caught.value.path, caught.value.offset) == ("x.sst", 7)


@pytest.mark.parametrize(
    ("key", "length"), [(b"", None), (b"user", None), (b"user:", 5), (b"user:1:2", 5), (b":", 1), (b"us:er:", 3)]
)
def test_prefixes_up_to_a_delimiter(key: bytes, length: int | None) -> None:
    """A prefix that includes its delimiter has one filter entry; a shorter prefix may have several."""
    by_colon = DelimitedPrefix("colon", b":")
    assert by_colon.prefix_len(key) == length
    assert by_colon.scan_prefix_len(key) == length


@pytest.mark.parametrize("bits", [0, -1, 1001])
def test_impossible_bits(bits: int) -> None:
    with pytest.raises(InvalidRequestError, match="bits_per_key"):
        BloomPolicy(bits)
