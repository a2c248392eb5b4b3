"""The checker finds every named anomaly and accepts serializable histories."""

import random

import pytest

from shale.testing.serializability import Committed, NotSerializable, RangeRead, check_serializable

X0 = Committed(name="first", seq=1, writes={b"x": b"x0", b"y": b"y0"})

ANOMALIES = {
    "write skew (G2-item)": [
        X0,
        Committed(name="a", seq=2, reads={b"x": b"x0", b"y": b"y0"}, writes={b"x": b"xa"}),
        Committed(name="b", seq=3, reads={b"x": b"x0", b"y": b"y0"}, writes={b"y": b"yb"}),
    ],
    "lost update (G-single)": [
        X0,
        Committed(name="a", seq=2, reads={b"x": b"x0"}, writes={b"x": b"xa"}),
        Committed(name="b", seq=3, reads={b"x": b"x0"}, writes={b"x": b"xb"}),
    ],
    "read skew (G-single)": [
        X0,
        Committed(name="a", seq=2, writes={b"x": b"xa", b"y": b"ya"}),
        Committed(name="b", reads={b"x": b"x0", b"y": b"ya"}),
    ],
    "phantom (G2)": [
        Committed(name="a", seq=1, ranges=[RangeRead(start=b"k", stop=b"l")], writes={b"k1": b"a"}),
        Committed(name="b", seq=2, ranges=[RangeRead(start=b"k", stop=b"l")], writes={b"k2": b"b"}),
    ],
    "a phantom that was deleted (G2)": [
        X0,
        Committed(name="a", seq=2, ranges=[RangeRead(rows={b"x": b"x0", b"y": b"y0"})], writes={b"x": None}),
        Committed(name="b", seq=3, ranges=[RangeRead(rows={b"x": b"x0", b"y": b"y0"})], writes={b"y": None}),
    ],
    "read-only transaction (Fekete)": [
        X0,
        Committed(name="deposit", seq=2, reads={b"y": b"y0"}, writes={b"y": b"y20"}),
        Committed(name="report", reads={b"x": b"x0", b"y": b"y20"}),
        Committed(name="withdraw", seq=3, reads={b"x": b"x0", b"y": b"y0"}, writes={b"x": b"x-11"}),
    ],
    "circular information flow (G1c)": [
        Committed(name="a", seq=1, reads={b"y": b"yb"}, writes={b"x": b"xa"}),
        Committed(name="b", seq=2, reads={b"x": b"xa"}, writes={b"y": b"yb"}),
    ],
    "aborted read (G1a)": [X0, Committed(name="a", reads={b"x": b"never"})],
    "intermediate read (G1b)": [
        Committed(name="a", seq=1, writes={b"x": b"x2"}, overwritten=frozenset([b"x1"])),
        Committed(name="b", reads={b"x": b"x1"}),
    ],
    "a value from nowhere": [X0, Committed(name="a", reads={b"x": b"x7"})],
    "a stale read after its own place": [
        X0,
        Committed(name="a", seq=2, writes={b"x": b"xa", b"z": b"za"}),
        Committed(name="b", seq=3, reads={b"x": b"x0", b"z": b"za"}, writes={b"w": b"w"}),
    ],
    "a row outside of its range": [X0, Committed(name="a", ranges=[RangeRead(start=b"y", rows={b"x": b"x0"})])],
}


@pytest.mark.parametrize("name", ANOMALIES)
def test_an_anomaly_is_found_in_any_order_of_the_list(name: str) -> None:
    for seed in range(5):
        history = list(ANOMALIES[name])
        random.Random(seed).shuffle(history)
        with pytest.raises(NotSerializable):
            check_serializable(history, aborted=[b"never"])


def test_the_message_shows_the_circle() -> None:
    with pytest.raises(NotSerializable, match=r"overtaken b'[xy]'") as caught:
        check_serializable(ANOMALIES["write skew (G2-item)"])
    assert "a -> b" in str(caught.value)
    assert "first" not in str(caught.value)


HARMLESS = {
    "nothing": [],
    "one after the other": [
        X0,
        Committed(name="a", seq=2, reads={b"x": b"x0"}, writes={b"x": b"xa"}),
        Committed(name="b", seq=3, reads={b"x": b"xa"}, writes={b"x": b"xb"}),
    ],
    "blind writes": [
        X0,
        Committed(name="a", seq=2, writes={b"x": b"1"}),
        Committed(name="b", seq=3, writes={b"x": b"2"}),
    ],
    "one that read before the other wrote": [
        X0,
        Committed(name="a", seq=2, writes={b"x": b"xa"}),
        Committed(name="b", seq=3, reads={b"x": b"x0"}, writes={b"z": b"z"}),
    ],
    "a deletion that is seen": [
        X0,
        Committed(name="a", seq=2, writes={b"x": None}),
        Committed(name="b", seq=3, reads={b"x": None}, writes={b"x": b"xb"}),
        Committed(name="c", seq=4, reads={b"x": b"xb"}, writes={b"x": None}),
    ],
    "ranges that do not meet": [
        Committed(name="a", seq=1, ranges=[RangeRead(stop=b"k")], writes={b"m": b"a"}),
        Committed(name="b", seq=2, ranges=[RangeRead(start=b"n")], writes={b"a": b"b"}),
    ],
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_could_have_happened_in_an_order_is_let_be(name: str) -> None:
    check_serializable(HARMLESS[name])


@pytest.mark.parametrize("seed", range(20))
def test_serial_histories_pass_and_one_stale_read_is_found(seed: int) -> None:
    """Transactions run one after the other; then the last one reads a version that was replaced."""
    rng = random.Random(seed)
    state: dict[bytes, bytes] = {}
    history: list[Committed] = []
    for seq in range(1, 40):
        keys = rng.sample([b"a", b"b", b"c", b"d"], 2)
        reads = {key: state.get(key) for key in keys}
        writes = {key: (None if rng.random() < 0.2 else b"%s%d" % (key, seq)) for key in rng.sample(keys, 1)}
        ranges = [RangeRead(start=b"c", rows={key: state[key] for key in state if key >= b"c"})]
        history.append(Committed(name=f"t{seq}", seq=seq, reads=reads, ranges=ranges, writes=writes))
        for key, value in writes.items():
            state.pop(key, None)
            if value is not None:
                state[key] = value
    check_serializable(history)
    last = Committed(name="last", seq=40, reads=dict(state), writes=dict.fromkeys(state, b"new"))
    replaced = Committed(name="other", seq=41, reads=dict(state), writes={min(state): b"other"})
    check_serializable([*history, last])
    with pytest.raises(NotSerializable):
        check_serializable([*history, last, replaced])
