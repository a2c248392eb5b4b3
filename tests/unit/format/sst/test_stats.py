"""The stats block."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shale.format.sst.stats import SstStats, decode_stats, encode_stats
from tests.unit.format.table_writer import TableWriter

stretches = st.lists(
    st.tuples(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 65535)), st.integers(1, 40)), max_size=6
)


@given(stretches)
def test_same_bytes_as_block_by_block_and_back(stretch_list: list[tuple[tuple[int, int, int], int]]) -> None:
    blocks = [list(counts) for counts, times in stretch_list for _ in range(times)]
    stats = SstStats(
        num_puts=1,
        num_deletes=2,
        num_merges=3,
        raw_key_size=4,
        raw_val_size=5,
        blocks=np.array(blocks, np.uint16).reshape(-1, 3),
    )
    image = encode_stats(stats)
    writer = TableWriter()
    tables = [writer.table("BlockStats", counts) for counts in blocks]
    vector = writer.references(tables) if tables else 0
    assert image == writer.finish(writer.table("SstStats", (1, 2, 3, 4, 5, vector)))
    decoded = decode_stats(image)
    assert decoded.blocks.tolist() == blocks
    assert decoded.num_rows == 6
    assert (decoded.raw_key_size, decoded.raw_val_size) == (4, 5)
