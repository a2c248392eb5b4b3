"""Small state files are decoded once per process; errors are always new and name the requested file."""

import pytest

from shale.errors import CorruptionError
from shale.protocol.versioned_store import cached_decoder


class Decoder:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, data: bytes) -> list[bytes]:
        self.calls += 1
        if data == b"bad":
            raise CorruptionError("these bytes are bad")
        return [data]


def test_equal_bytes_are_decoded_once_in_whatever_buffer_they_come() -> None:
    decoder = Decoder()
    decode = cached_decoder(decoder)
    first = decode(b"abc", "one")
    assert decode(memoryview(bytearray(b"abc")), "two") is first
    assert decode(b"abd", "one") == [b"abd"]
    assert decoder.calls == 2


def test_an_error_names_the_file_that_was_read_and_is_not_remembered() -> None:
    decoder = Decoder()
    decode = cached_decoder(decoder)
    for path in ("one", "two"):
        with pytest.raises(CorruptionError) as caught:
            decode(b"bad", path)
        assert caught.value.path == path
    assert decoder.calls == 2


def test_large_files_are_not_kept() -> None:
    decoder = Decoder()
    decode = cached_decoder(decoder)
    large = bytes(1 << 20)
    assert decode(large, "one") is not decode(large, "one")
    assert decoder.calls == 2
