"""Opening the metadata of an SST: what a search would go wrong with is refused."""

import pytest

from shale.errors import CorruptionError
from shale.sst.meta import decode_meta, meta_span
from tests.unit.sst.verify.forge import SOUND, Forge


def test_separators_that_descend_are_refused_and_equal_ones_are_not() -> None:
    forge = Forge([list(block) for block in SOUND])
    assert forge.separators == [b"", b"c", b"c"]
    data, info = forge.write()
    start, end = meta_span(info, "a.sst")
    assert decode_meta(info, data[start:end], start, path="a.sst").index.first_keys() == [b"", b"c", b"c"]

    forge.separators[2] = b"bz"
    data, info = forge.write()
    start, end = meta_span(info, "a.sst")
    with pytest.raises(CorruptionError, match="lower key for block 2") as caught:
        decode_meta(info, data[start:end], start, path="a.sst")
    assert (caught.value.path, caught.value.offset) == ("a.sst", info.index_offset)
