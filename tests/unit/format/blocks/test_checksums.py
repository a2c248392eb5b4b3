"""The check of checksums: by the kernel and by plain Python, on the same blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import CorruptionError
from shale.format.blocks import checksums
from shale.format.blocks.checksums import damaged_blocks
from shale.format.blocks.section import seal_section
from shale.kernels.dispatch import use_kernels
from shale.types import Compression

BLOCKS = st.lists(st.binary(min_size=1, max_size=100), min_size=1, max_size=20)


def stored(images: list[bytes]) -> tuple[bytearray, np.ndarray]:
    sections = [seal_section(image, Compression.NONE) for image in images]
    return bytearray(b"".join(sections)), np.cumsum([1000, *map(len, sections)])


@pytest.fixture(params=["kernel", "plain"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(checksums, "use_kernels", lambda: False)
    elif not use_kernels():
        pytest.skip("there are no compiled kernels")


@given(BLOCKS, st.data())
def test_every_flipped_bit_is_found(images: list[bytes], data: st.DataObject) -> None:
    blocks, offsets = stored(images)
    assert damaged_blocks(bytes(blocks), offsets, "x.sst") == []
    places = data.draw(st.sets(st.integers(0, len(blocks) * 8 - 1), min_size=1, max_size=4))
    for place in places:
        blocks[place // 8] ^= 1 << place % 8
    numbers = {int(np.searchsorted(offsets - 1000, place // 8, side="right")) - 1 for place in places}
    found = damaged_blocks(bytes(blocks), offsets, "x.sst")
    # Several bits of one block may cancel each other out only if its checksum is among them.
    assert set(found) <= numbers
    if len(places) == 1:
        assert set(found) == numbers


def test_what_is_too_short_is_damaged() -> None:
    assert damaged_blocks(bytes(8), np.array([0, 3, 8]), "x.sst")[0] == 0


@pytest.mark.parametrize("offsets", [[0, 9], [0, 4, 4], [0, 5, 4]])
def test_offsets_that_do_not_fit_are_refused(offsets: list[int]) -> None:
    with pytest.raises(CorruptionError, match="do not fit"):
        damaged_blocks(bytes(8), np.array(offsets), "x.sst")
