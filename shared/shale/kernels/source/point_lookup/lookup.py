"""Kernels: point lookups over the SSTs of one tree, in one call (tables: ``layout.point_lookup``)."""

from typing import Any

from shale.kernels.layout.point_lookup import (
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
from shale.kernels.source.jit import helper, kernel
from shale.kernels.source.memory import load_u64, set_word, word
from shale.kernels.source.point_lookup.sst import answer_of, begin, find_on
from shale.kernels.source.siphash import siphash13


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
        # The lookup is repeated after the missing part was read, and counts then.
        set_word(out, OUT_FILTER_NEGATIVES, negatives)
        set_word(out, OUT_FILTER_POSITIVES, positives)
        set_word(out, OUT_FILTER_FALSE_POSITIVES, false_positives)
        set_word(out, OUT_SSTS, ssts)
        set_word(out, OUT_BLOCKS, blocks)
    return status


@kernel("i64(key, u64, i64, i64, i64)", holds_lock=True)
def lookup(key: int, key_len: int, max_seq: Any, level_table: int, n_levels: int, out: int) -> int:
    """Find the newest row of a key at or below ``max_seq``; see ``layout.point_lookup``."""
    return _find(key, key_len, max_seq, level_table, n_levels, out)


@kernel("answer(key, i64)", holds_lock=True)
def lookup_value(key: int, key_len: int, record: int, answer: int) -> None:
    """Find the newest value of a key; see ``layout.point_lookup``."""
    out = word(record, RECORD_OUT)
    max_seq = load_u64(record + 8 * RECORD_MAX_SEQ)
    table, levels = word(record, RECORD_TABLE), word(record, RECORD_LEVELS)
    status, address, size = answer_of(_find(key, key_len, max_seq, table, levels, out), out)
    set_word(answer, 0, status)
    set_word(answer, 1, address)
    set_word(answer, 2, size)
