"""SCAN, its patterns and cursors, and SHALE.SCAN."""

import asyncio
import random
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shale.resp.arguments.glob import literal_prefix, matcher
from shale.resp.cursors import Cursors
from tests.examples import examples
from tests.loop_rounds import counted_rounds
from tests.unit.resp.harness import RespFailure, Talker, harness

LONG_KEYS = 40


async def scan_all(say: Talker, *words: str | int) -> list[bytes]:
    found, cursor = list[bytes](), b"0"
    while True:
        cursor, keys = await say("SCAN", cursor, *words)
        found += keys
        if cursor == b"0":
            return found


def test_every_key_comes_once() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            keys = [b"k%03d" % number for number in range(100)]
            for key in keys:
                await say("SET", key, "v")
            for count in (1, 7, 10, 100, 1000):
                assert await scan_all(say, "COUNT", count) == keys
            assert await scan_all(say) == keys
            assert await scan_all(say, "MATCH", "k00*", "COUNT", 3) == keys[:10]
            assert await scan_all(say, "MATCH", "*7", "COUNT", 3) == keys[7::10]
            assert await scan_all(say, "TYPE", "string") == keys
            assert await scan_all(say, "TYPE", "hash") == []
            assert await scan_all(say, "MATCH", "k042") == [b"k042"]

    asyncio.run(scenario())


@settings(max_examples=examples(20))  # each of them opens a database
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=60), st.integers(1, 9), st.randoms())
def test_writes_in_between_neither_hide_nor_repeat_what_stays(
    writes: list[tuple[bool, int]], count: int, rng: random.Random
) -> None:
    """Even keys stay; other connections add and delete odd ones during the scan."""

    async def scenario() -> None:
        async with harness() as home:
            say, other = home.talker(), home.talker()
            stay = [b"%04d" % number for number in range(0, 80, 2)]
            for key in stay:
                await say("SET", key, "v")
            found, cursor, left = list[bytes](), b"0", list(writes)
            while True:
                cursor, keys = await rng.choice((say, other))("SCAN", cursor, "COUNT", count)
                found += keys
                if cursor == b"0":
                    break
                for is_put, number in left[:3]:
                    words = ("SET", b"%04d" % (2 * number + 1), "x") if is_put else ("DEL", b"%04d" % (2 * number + 1))
                    await other(*words)
                del left[:3]
            assert [key for key in found if int(key) % 2 == 0] == stay
            assert len(found) == len(set(found))

    asyncio.run(scenario())


def test_a_cursor_may_be_used_again_and_an_unknown_one_is_an_error() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("MSET", "a", "1", "b", "2", "c", "3")
            cursor, keys = await say("SCAN", "0", "COUNT", "1")
            assert keys == [b"a"]
            assert (await say("SCAN", cursor, "COUNT", "1"))[1] == [b"b"]
            assert (await home.talker()("SCAN", cursor, "COUNT", "1"))[1] == [b"b"]
            for bad in ("77", "-1", "x", "18446744073709551616"):
                with pytest.raises(RespFailure, match="cursor"):
                    await say("SCAN", bad)
            for words in (("COUNT", "0"), ("COUNT",), ("FOO", "1"), ("COUNT", "x")):
                with pytest.raises(RespFailure, match=r"^ERR "):
                    await say("SCAN", "0", *words)

    asyncio.run(scenario())


def test_cursors_are_bounded_in_number_and_bytes() -> None:
    cursors = Cursors(random.Random(1), count_max=3, key_bytes_max=100)
    first, second, third = (cursors.add(b"key%d" % number) for number in range(3))
    assert cursors.find(first) == b"key0"
    fourth = cursors.add(b"key3")
    assert cursors.find(second) is None  # the one that was not asked for the longest
    assert [cursors.find(each) for each in (first, third, fourth)] == [b"key0", b"key2", b"key3"]
    long = cursors.add(b"x" * 99)
    assert cursors.find(long) == b"x" * 99
    assert len(cursors) == 1
    assert 0 < long < 1 << 63


def by_hand(pattern: bytes, key: bytes) -> bool:
    """Match a pattern of stars and question marks only."""
    if not pattern:
        return not key
    if pattern[:1] == b"*":
        return any(by_hand(pattern[1:], key[start:]) for start in range(len(key) + 1))
    return bool(key) and pattern[:1] in (b"?", key[:1]) and by_hand(pattern[1:], key[1:])


@given(
    st.text("ab*?", max_size=6).map(str.encode),
    st.lists(st.sampled_from([b"a", b"b", b"\n", b"\xff"]), max_size=6).map(b"".join),
)
def test_patterns_of_stars(pattern: bytes, key: bytes) -> None:
    assert bool(matcher(pattern)(key)) == by_hand(pattern, key)
    if by_hand(pattern, key):
        assert key.startswith(literal_prefix(pattern))


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (b"h[ae]llo", [b"hello", b"hallo"], [b"hillo", b"hllo"]),
        (b"h[^e]llo", [b"hallo"], [b"hello"]),
        (b"h[a-c]", [b"ha", b"hb", b"hc"], [b"hd", b"h-"]),
        (b"h[c-a]", [b"hb"], [b"hd"]),
        (rb"a\*b", [b"a*b"], [b"axb"]),
        (rb"[\]x]", [b"]", b"x"], [b"\\"]),
        (b"[^]", [b"a"], [b""]),
        (b"[]", [], [b"a", b""]),
        (b"[abc", [b"a"], [b"d"]),
        (b"a\\", [b"a\\"], [b"a"]),
        (b"a.b$", [b"a.b$"], [b"axb$"]),
        (b"[a^]", [b"a", b"^"], [b"b"]),
    ],
)
def test_patterns_with_classes(pattern: bytes, yes: list[bytes], no: list[bytes]) -> None:
    is_match = matcher(pattern)
    assert all(is_match(key) for key in yes)
    assert not any(is_match(key) for key in no)


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_any_pattern_can_be_asked(pattern: bytes, key: bytes) -> None:
    if matcher(pattern)(key):
        assert key.startswith(literal_prefix(pattern))


def test_a_hostile_pattern_takes_no_time() -> None:
    is_match = matcher(b"*a" * 40 + b"b")
    start = process_time()
    assert not is_match(b"a" * 5000)
    assert process_time() - start < 2


def test_ranges_with_tokens() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            rows = [(b"k%02d" % number, b"v%d" % number) for number in range(20)]
            for key, value in rows:
                await say("SET", key, value)

            async def walk(*words: str | int) -> list[tuple[bytes, bytes]]:
                found, token = list[bytes](), None
                while True:
                    resume = () if token is None else ("RESUME", token)
                    token, flat = await say("SHALE.SCAN", *words, *resume)
                    found += flat
                    if token is None:
                        return list(zip(found[::2], found[1::2], strict=True))

            assert await walk() == rows
            assert await walk("LIMIT", 3) == rows
            assert await walk("REVERSE", "LIMIT", 3) == rows[::-1]
            assert await walk("PREFIX", "k1", "LIMIT", 4) == rows[10:]
            assert await walk("START", "k05", "STOP", "k09", "LIMIT", 1) == rows[5:9]
            assert await walk("LIMIT", 1, "STOP", "k09", "START", "k05", "REVERSE") == rows[5:9][::-1]
            for words in (("LIMIT", "0"), ("RESUME", "xyz"), ("START",), ("FOO", "1"), ("LIMIT", "x")):
                with pytest.raises(RespFailure, match=r"^ERR "):
                    await say("SHALE.SCAN", *words)

    asyncio.run(scenario())


def test_an_answer_of_large_rows_ends_early() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            for number in range(6):
                await say("SET", f"k{number}", b"x" * (3 << 20))
            token, flat = await say("SHALE.SCAN")
            assert flat[::2] == [b"k0", b"k1"]
            token, flat = await say("SHALE.SCAN", "RESUME", token, "REVERSE")
            assert flat[::2] == [b"k0"]
            assert token is None

    asyncio.run(scenario())


def test_a_pattern_that_would_delay_other_clients_is_refused() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "?", "v")
            before = process_time()
            with pytest.raises(RespFailure, match="at most 1024 bytes"):
                await say("SCAN", "0", "MATCH", b"?" * (4 << 20))
            assert process_time() - before < 2
            assert (await say("SCAN", "0", "MATCH", b"*" * 1024))[1] == [b"?"]

    asyncio.run(scenario())


def test_patterns_of_one_command_are_limited() -> None:
    """Compiling them blocks the server."""

    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            assert len(await say("CONFIG", "GET", *(f"a{number}*" for number in range(200)), "time*")) == 2
            with pytest.raises(RespFailure, match="1024 bytes together"):
                await say("CONFIG", "GET", *(f"a{number}*" for number in range(1000)))
            with pytest.raises(RespFailure, match="at most 1024 bytes"):
                await say("COMMAND", "LIST", "FILTERBY", "PATTERN", "?*a" * 2000)

    asyncio.run(scenario())


@pytest.mark.parametrize("words", [("KEYS", "*no*"), ("SCAN", "0", "MATCH", "*no*", "COUNT", "100")], ids=" ".join)
def test_a_pattern_gives_way_to_others_between_long_keys(words: tuple[str, ...]) -> None:
    """Comparing takes the longer the keys are."""

    async def scenario() -> None:
        async with harness(flush_interval=60.0) as home:
            for number in range(LONG_KEYS):
                await home.db.put(b"%02d" % number + b"x" * 60_000, b"1")
            say = home.talker()
            async with counted_rounds() as rounds:
                await say(*words)
            assert rounds.count >= LONG_KEYS - 2

    asyncio.run(scenario())
