"""Random databases: rows in L0s and runs, keys that span two SSTs included."""

from hypothesis import strategies as st

from shale.types import UNBOUNDED, KeyRange, Manifest, Seq, SortedRun, SstView, Ulid, excluded, included
from tests.unit.clones.values import Contents, run, tree, view

KEYS = [bytes([letter]) for letter in b"abcdefgh"]


@st.composite
def key_ranges(draw: st.DrawFn) -> KeyRange:
    """Return any range over the keys and between them, also empty ones."""
    texts = st.sampled_from([*KEYS, b"", b"c\0", b"ee"])
    bounds = st.one_of(st.just(UNBOUNDED), texts.map(included), texts.map(excluded))
    return KeyRange(draw(bounds), draw(bounds))


@st.composite
def databases(draw: st.DrawFn, keys: tuple[bytes, ...] = tuple(KEYS), first_ms: int = 1) -> tuple[Manifest, Contents]:
    """Return a manifest of one tree and the rows of its SSTs.  Seqs ascend from the oldest run to the newest L0."""
    contents: dict[Ulid, dict[bytes, list[int]]] = {}
    seq, ms = 0, first_ms - 1
    runs: list[SortedRun] = []
    l0: list[SstView] = []

    def stored(rows: dict[bytes, list[int]]) -> SstView:
        nonlocal ms
        ms += 1
        names = sorted(rows)
        shown = view(ms, names[0], names[-1])
        contents[shown.sst.id] = rows
        return shown

    for run_id in range(draw(st.integers(0, 3))):
        rows = []
        for key in sorted(draw(st.sets(st.sampled_from(keys), min_size=1))):
            count = draw(st.integers(1, 3))
            rows += [(key, seq + count - number) for number in range(count)]
            seq += count
        cuts = sorted(draw(st.sets(st.integers(1, len(rows)), max_size=3)) | {len(rows)})
        views, start = [], 0
        for end in cuts:
            part: dict[bytes, list[int]] = {}
            for key, version in rows[start:end]:
                part.setdefault(key, []).append(version)
            views.append(stored(part))
            start = end
        runs.insert(0, run(run_id, *views))
    for _ in range(draw(st.integers(0, 3))):
        part = {}
        for key in sorted(draw(st.sets(st.sampled_from(keys), min_size=1))):
            seq += 1
            part[key] = [seq]
        l0.insert(0, stored(part))
    return Manifest(tree=tree(l0, runs), last_l0_seq=Seq(seq)), contents
