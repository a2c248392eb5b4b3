"""Kernels: point lookups over the SSTs of one tree, in one call (tables: ``lookup_layout``)."""

from typing import Any

from numba import types

from shale.kernels.jit import helper, kernel
from shale.kernels.lookup_layout import (
    ABSENT,
    FOUND,
    OUT_BLOCKS,
    OUT_FILTER_FALSE_POSITIVES,
    OUT_FILTER_NEGATIVES,
    OUT_FILTER_POSITIVES,
    OUT_SSTS,
    RECORD_LEVELS,
    RECORD_MAX_SEQ,
    RECORD_OUT,
    RECORD_TABLE,
)
from shale.kernels.lookup_sst import answer_of, begin, find_on
from shale.kernels.memory import load_u64, set_word, word
from shale.kernels.object_types import ANSWER, KEY, answer
from shale.kernels.siphash import siphash13


@helper
def _find(key: int, key_len: int, max_seq: Any, level_table: int, n_levels: int, out: int) -> int:
    negatives = word(out, OUT_FILTER_NEGATIVES)
    positives = word(out, OUT_FILTER_POSITIVES)
    false_positives = word(out, OUT_FILTER_FALSE_POSITIVES)
    ssts = word(out, OUT_SSTS)
    blocks = word(out, OUT_BLOCKS)
    begin(out)
    status = find_on(key, key_len, siphash13(key, key_len), max_seq, level_table, n_levels, out)
    if status not in (FOUND, ABSENT):
        # Whoever reads what is missing looks at everything again, and counts it then.
        set_word(out, OUT_FILTER_NEGATIVES, negatives)
        set_word(out, OUT_FILTER_POSITIVES, positives)
        set_word(out, OUT_FILTER_FALSE_POSITIVES, false_positives)
        set_word(out, OUT_SSTS, ssts)
        set_word(out, OUT_BLOCKS, blocks)
    return status


@kernel(types.int64(KEY, types.uint64, types.int64, types.int64, types.int64), nogil=False, direct=True)
def lookup(key: Any, max_seq: Any, level_table: int, n_levels: int, out: int) -> int:
    """Find the newest row of a key at or below ``max_seq``; see ``lookup_layout``."""
    return _find(key.address, key.size, max_seq, level_table, n_levels, out)


@kernel(ANSWER(KEY, types.int64), nogil=False, direct=True)
def lookup_value(key: Any, record: int) -> Any:
    """Find the newest value of a key; see ``lookup_layout``."""
    out = word(record, RECORD_OUT)
    max_seq = load_u64(record + 8 * RECORD_MAX_SEQ)
    table, levels = word(record, RECORD_TABLE), word(record, RECORD_LEVELS)
    status, address, size = answer_of(_find(key.address, key.size, max_seq, table, levels, out), out)
    return answer(status, address, size)
