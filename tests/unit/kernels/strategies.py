"""Rows for property tests: many versions of few keys, shared prefixes, all flags, and some large rows."""

from hypothesis import strategies as st

from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry

TIMES = st.integers(-(2**63), 2**63 - 1)
KEYS = st.one_of(
    st.binary(min_size=1, max_size=6),
    st.integers(0, 300).map(lambda number: b"user/%08d/name" % number),
    st.sampled_from([b"k" * 200, b"k" * 200 + b"l", b"\x00", b"\xff" * 9]),
)
VALUES = st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"v" * 130, b"w" * 20_000]))


@st.composite
def entries(draw: st.DrawFn, keys: st.SearchStrategy[bytes] = KEYS) -> Entry:
    kind = draw(st.sampled_from([0, 0, FLAG_MERGE, FLAG_TOMBSTONE]))
    flags = kind | draw(st.sampled_from([0, FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_CREATE_TS | FLAG_EXPIRE_TS]))
    return Entry(
        key=draw(keys),
        value=b"" if kind == FLAG_TOMBSTONE else draw(VALUES),
        seq=draw(st.integers(0, 2**64 - 1)),
        flags=flags,
        create_ts=draw(TIMES) if flags & FLAG_CREATE_TS else 0,
        expire_ts=draw(TIMES) if flags & FLAG_EXPIRE_TS else 0,
    )


def in_order(rows: list[Entry]) -> list[Entry]:
    """Ascending keys, newest version first, no version twice."""
    unique = {(entry.key, entry.seq): entry for entry in rows}
    return sorted(unique.values(), key=lambda entry: (entry.key, -entry.seq))


SORTED_ROWS = st.lists(entries(), min_size=1, max_size=120).map(in_order)
ANY_ROWS = st.lists(entries(), min_size=1, max_size=120)
