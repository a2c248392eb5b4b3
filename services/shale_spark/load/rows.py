"""Conversion of Arrow batches in key order to rows of one commit: checked, deduplicated, stamped.

Nothing is done row by row, and keys and values stay in Arrow's buffers.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shale.engine.load.manifest import shown
from shale.errors import InvalidRequestError
from shale.kernels.rows import EMPTY_ROWS, Rows
from shale.types import FLAG_CREATE_TS
from shale_spark.arrow import batch_to_rows
from shale_spark.codecs import InvalidValue, ValueCodec
from shale_spark.load.rules import EXPIRE_MS, KEY, KEY_BYTES_MAX, VALUE, VALUE_BYTES_MAX, DuplicateKeys, RowRules


class RowStream:
    """The rows of one task, batch after batch; counts the rows it leaves out."""

    def __init__(self, rules: RowRules) -> None:
        self._rules = rules
        self._last_key: bytes | None = None
        self.repeated = 0
        self.expired = 0

    def take(self, batch: pa.RecordBatch) -> Rows:
        """Return the rows to store, by strictly ascending key; possibly none.

        Raises:
            InvalidRequestError: a row that no database can hold, a key that occurs twice although it must not, or rows
                out of order; names the row.
        """
        if not batch.num_rows:
            return EMPTY_ROWS
        keys, values = valid_rows(batch, self._rules.codec)
        columns = {"key": keys, "value": values}
        ends = self._ends(batch)
        if ends is not None:
            columns["expire_ts"] = ends
        return self._stamped(self._first_of_each(pa.RecordBatch.from_pydict(columns)))

    def _ends(self, batch: pa.RecordBatch) -> Any:
        """Return when each row expires; ``None``: never."""
        ttl_ms = self._rules.ttl_ms
        default = None if ttl_ms is None else self._rules.stamp.create_ts + ttl_ms
        if EXPIRE_MS not in batch.schema.names:
            return None if default is None else pa.array(np.full(len(batch), default, np.int64))
        ends = batch.column(EXPIRE_MS)
        return ends if default is None else pc.fill_null(ends, default)

    def _first_of_each(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the first row of every key."""
        keys = batch.column("key")
        before = pa.concat_arrays([pa.array([self._last_key], keys.type), keys.slice(0, len(keys) - 1)])
        self._last_key = keys[-1].as_py()
        # The first key of the task is compared with a null, which is neither greater nor equal.
        falling = pc.greater(before, keys)
        if pc.any(falling).as_py():
            place = _first(falling)
            late, early = _shown(keys, place), _shown(before, place)
            raise InvalidRequestError(f"key {late} comes after {early}: the rows are not sorted by key")
        same = pc.fill_null(pc.equal(before, keys), fill_value=False)
        count = pc.sum(same).as_py()
        if not count:
            return batch
        if self._rules.duplicates is DuplicateKeys.ERROR:
            raise InvalidRequestError(f"key {_shown(keys, _first(same))} occurs more than once")
        self.repeated += count
        return batch.filter(pc.invert(same))

    def _stamped(self, batch: pa.RecordBatch) -> Rows:
        stamp = self._rules.stamp
        if "expire_ts" in batch.schema.names:
            expired = pc.fill_null(pc.less_equal(batch.column("expire_ts"), stamp.create_ts), fill_value=False)
            count = pc.sum(expired).as_py()
            if count:
                self.expired += count
                batch = _as_tombstones(batch, expired) if stamp.keeps_expired else batch.filter(pc.invert(expired))
        rows = batch_to_rows(batch, seq=np.full(len(batch), stamp.seq, np.uint64))
        return replace(
            rows, flags=rows.flags | np.uint8(FLAG_CREATE_TS), create_ts=np.full(len(rows), stamp.create_ts, np.int64)
        )


def valid_rows(batch: pa.RecordBatch, codec: ValueCodec | None) -> tuple[Any, Any]:
    """Return keys and values of a batch that has the columns of ``rules``.

    Raises:
        InvalidRequestError: a row that no database can hold; names it.
    """
    if codec is None:
        values = batch.column(VALUE)
    else:
        names = [name for name in batch.schema.names if name not in (KEY, EXPIRE_MS)]
        values = _encoded(batch.column(KEY), batch.select(names), codec)
    keys = batch.column(KEY)
    _require_possible(keys, values)
    return keys, values


def unencodable_rows(columns: pa.RecordBatch, codec: ValueCodec, start: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the positions, from ``start`` on, of rows that a codec refuses, with the reason; found by bisection."""
    if not columns.num_rows:
        return
    try:
        codec.encode(columns)
    except InvalidValue as error:
        if columns.num_rows == 1:
            yield start, str(error).removeprefix("row 0 ")
            return
        middle = columns.num_rows // 2
        yield from unencodable_rows(columns.slice(0, middle), codec, start)
        yield from unencodable_rows(columns.slice(middle), codec, start + middle)


def _encoded(keys: Any, columns: pa.RecordBatch, codec: ValueCodec) -> Any:
    try:
        return codec.encode(columns)
    except InvalidValue as error:
        found = next(unencodable_rows(columns, codec), None)
        if found is None:  # user code that is not deterministic
            raise
        place, reason = found
        raise InvalidValue(f"row with key {_shown(keys, place)}: {reason}") from error


def rejection_reasons(batch: pa.RecordBatch, codec: ValueCodec | None) -> Any:
    """Return why each row of a batch that has the columns of ``rules`` cannot be stored; null where it can."""
    keys = batch.column(KEY)
    reasons = pa.nulls(len(batch), pa.string())
    for mask, reason in _row_checks(keys, batch.column(VALUE) if codec is None else None):
        reasons = pc.coalesce(reasons, pc.if_else(mask, reason, None))
    if codec is None:
        return reasons
    names = [name for name in batch.schema.names if name not in (KEY, EXPIRE_MS)]
    texts = reasons.to_pylist()
    for place, reason in unencodable_rows(batch.select(names), codec):
        texts[place] = texts[place] or reason
    return pa.array(texts, pa.string())


def first_rejection(keys: Any, values: Any) -> tuple[int, str] | None:
    """Return the position of the first row that cannot be stored, and the reason; ``None`` if there is none."""
    for mask, reason in _row_checks(keys, values):
        if pc.any(mask).as_py():
            return _first(mask), reason
    return None


def _row_checks(keys: Any, values: Any | None) -> Iterator[tuple[Any, str]]:
    """Yield the rules for rows: a mask of the rows that break it, and the reason.

    ``values`` are ``None`` if a codec has yet to make them.
    """
    yield pc.is_null(keys), "the key is null"
    yield pc.equal(pc.binary_length(keys), 0), "the key is empty"
    yield pc.greater(pc.binary_length(keys), KEY_BYTES_MAX), f"the key is longer than {KEY_BYTES_MAX} bytes"
    if values is not None:
        yield pc.is_null(values), "the value is null"
        yield pc.greater(pc.binary_length(values), VALUE_BYTES_MAX), f"the value is longer than {VALUE_BYTES_MAX} bytes"


def _require_possible(keys: Any, values: Any) -> None:
    found = first_rejection(keys, values)
    if found is None:
        return
    place, reason = found
    value = values[place].as_py()
    shown_value = "null" if value is None else shown(value)
    raise InvalidRequestError(f"row with key {_shown(keys, place)} and value {shown_value}: {reason}")


def _as_tombstones(batch: pa.RecordBatch, expired: Any) -> pa.RecordBatch:
    """Return the batch with nulls, which are tombstones, for expired rows: what they replace must not reappear."""
    values, ends = batch.column("value"), batch.column("expire_ts")
    return pa.RecordBatch.from_pydict(
        {
            "key": batch.column("key"),
            "value": pc.if_else(expired, pa.scalar(None, values.type), values),
            "expire_ts": pc.if_else(expired, pa.scalar(None, ends.type), ends),
        }
    )


def _first(mask: Any) -> int:
    place: int = pc.index(mask, value=True).as_py()
    return place


def _shown(keys: Any, place: int) -> str:
    key = keys[place].as_py()
    return "null" if key is None else shown(key)
