"""Arrow batches become rows of one commit: kept rows, refused rows, and their sequence numbers and times."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.engine.load.manifest import LoadStamp
from shale.errors import InvalidRequestError
from shale.kernels.rows import concat_rows, entries_from_rows
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_TOMBSTONE, Entry
from shale_spark.load.rows import RowStream
from shale_spark.load.rules import DuplicateKeys, RowRules

NOW = 1_700_000_000_000
STAMP = LoadStamp(seq=7, create_ts=NOW, not_before_ms=NOW, keeps_expired=False)
RULES = RowRules(stamp=STAMP)

InRow = tuple[bytes | None, bytes | None, int | None]


def batch_of(rows: Sequence[InRow], *, large: bool = False, with_expiry: bool = True) -> pa.RecordBatch:
    binary = pa.large_binary() if large else pa.binary()
    columns = {
        "shale_key": pa.array([row[0] for row in rows], binary),
        "shale_value": pa.array([row[1] for row in rows], binary),
    }
    if with_expiry:
        columns["shale_expire_ms"] = pa.array([row[2] for row in rows], pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def taken(rules: RowRules, *batches: pa.RecordBatch) -> list[Entry]:
    stream = RowStream(rules)
    return entries_from_rows(concat_rows([stream.take(batch) for batch in batches]))


def model(rules: RowRules, rows: Sequence[InRow]) -> list[Entry]:
    stamp = rules.stamp
    out: list[Entry] = []
    last = None
    for key, value, expire_ms in rows:
        assert key is not None
        assert value is not None
        if key == last:
            continue
        last = key
        ends = stamp.create_ts + rules.ttl_ms if expire_ms is None and rules.ttl_ms is not None else expire_ms
        if ends is None:
            out.append(Entry(key, value, stamp.seq, FLAG_CREATE_TS, stamp.create_ts))
        elif ends > stamp.create_ts:
            out.append(Entry(key, value, stamp.seq, FLAG_CREATE_TS | FLAG_EXPIRE_TS, stamp.create_ts, ends))
        elif stamp.keeps_expired:
            out.append(Entry(key, b"", stamp.seq, FLAG_CREATE_TS | FLAG_TOMBSTONE, stamp.create_ts))
    return out


@given(
    rows=st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=3),
            st.binary(max_size=5),
            st.none() | st.integers(NOW - 2, NOW + 2),
        ),
        max_size=40,
    ),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    rules=st.builds(
        RowRules,
        stamp=st.sampled_from([STAMP, replace(STAMP, keeps_expired=True)]),
        duplicates=st.just(DuplicateKeys.LAST),
        ttl_ms=st.none() | st.integers(0, 2),
    ),
    large=st.booleans(),
    with_expiry=st.booleans(),
)
def test_rows_are_those_of_the_model(
    rows: list[InRow], cuts: list[int], rules: RowRules, large: bool, with_expiry: bool
) -> None:
    rows = sorted(rows, key=lambda row: row[0] or b"")
    if not with_expiry:
        rows = [(key, value, None) for key, value, _ in rows]
    places = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    whole = batch_of(rows, large=large, with_expiry=with_expiry)
    pieces = [whole.slice(start, end - start) for start, end in itertools.pairwise(places)]
    stream = RowStream(rules)
    entries = entries_from_rows(concat_rows([stream.take(piece) for piece in pieces]))
    assert entries == model(rules, rows)
    assert stream.repeated == len(rows) - len({row[0] for row in rows})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param((None, b"v1", None), "key null and value 'v1': the key is null", id="null key"),
        pytest.param((b"", b"v1", None), "value 'v1': the key is empty", id="empty key"),
        pytest.param(
            (b"x" * 65_536, b"v1", None), r"x'… \(65536 bytes\) and value 'v1': the key is longer", id="long key"
        ),
        pytest.param((b"k1", None, None), "key 'k1' and value null: the value is null", id="null value"),
    ],
)
def test_a_row_that_no_database_can_hold_is_named(row: InRow, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        taken(RULES, batch_of([(b"k0", b"v0", None), row]))


def test_the_longest_key_is_taken() -> None:
    (entry,) = taken(RULES, batch_of([(b"x" * 65_535, b"", None)]))
    assert len(entry.key) == 65_535


@pytest.mark.parametrize("cut", [1, 2])
def test_a_key_that_occurs_twice_is_named(cut: int) -> None:
    whole = batch_of([(b"a", b"1", None), (b"b", b"1", None), (b"b", b"1", None)])
    with pytest.raises(InvalidRequestError, match="key 'b' occurs more than once"):
        taken(RULES, whole.slice(0, cut), whole.slice(cut))


@pytest.mark.parametrize("cut", [1, 2])
@pytest.mark.parametrize("duplicates", list(DuplicateKeys))
def test_rows_out_of_order_are_refused(cut: int, duplicates: DuplicateKeys) -> None:
    whole = batch_of([(b"a", b"1", None), (b"\xff", b"1", None), (b"\x7f", b"1", None)])
    with pytest.raises(InvalidRequestError, match=r"key '\\x7f' comes after '\\xff'"):
        taken(replace(RULES, duplicates=duplicates), whole.slice(0, cut), whole.slice(cut))
