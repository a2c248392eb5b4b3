"""INCR and its variants: results, refusals, expiry, and the sums of many clients."""

import asyncio
import random
from fractions import Fraction

import pytest

from shale.resp.arguments import long_double
from tests.unit.resp.harness import Harness, RespFailure, harness

LARGEST = "9223372036854775807"
SMALLEST = "-9223372036854775808"


def test_counting() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            assert await say("INCR", "n") == 1
            assert await say("INCRBY", "n", "17179869184") == 17179869185
            assert await say("DECR", "n") == 17179869184
            assert await say("DECRBY", "n", "17179869185") == -1
            assert await say("DECRBY", "n", "-1") == 0
            assert await say("GET", "n") == b"0"
            assert await say("DECR", "below") == -1
            await say("SET", "n", LARGEST)
            assert await say("DECRBY", "n", "0") == int(LARGEST)
            await say("SET", "n", SMALLEST)
            assert await say("INCR", "n") == int(SMALLEST) + 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("value", "words", "problem"),
    [
        (" 1", ("INCR", "n"), "value is not an integer or out of range"),
        ("1 ", ("INCR", "n"), "value is not an integer or out of range"),
        ("01", ("INCR", "n"), "value is not an integer or out of range"),
        ("-0", ("INCR", "n"), "value is not an integer or out of range"),
        ("+1", ("INCR", "n"), "value is not an integer or out of range"),
        ("", ("INCR", "n"), "value is not an integer or out of range"),
        ("1.0", ("INCR", "n"), "value is not an integer or out of range"),
        ("9223372036854775808", ("DECR", "n"), "value is not an integer or out of range"),
        (LARGEST, ("INCR", "n"), "increment or decrement would overflow"),
        (SMALLEST, ("DECR", "n"), "increment or decrement would overflow"),
        ("1", ("INCRBY", "n", "1.5"), "value is not an integer or out of range"),
        ("1", ("DECRBY", "n", SMALLEST), "decrement would overflow"),
        ("a", ("INCRBYFLOAT", "n", "1"), "value is not a valid float"),
        (" 1", ("INCRBYFLOAT", "n", "1"), "value is not a valid float"),
        ("1\0", ("INCRBYFLOAT", "n", "1"), "value is not a valid float"),
        ("1", ("INCRBYFLOAT", "n", "nan"), "value is not a valid float"),
        ("1", ("INCRBYFLOAT", "n", "1e99999"), "value is not a valid float"),
        ("1", ("INCRBYFLOAT", "n", "-inf"), "increment would produce NaN or Infinity"),
        ("1e4932", ("INCRBYFLOAT", "n", "1.1e4932"), "increment would produce NaN or Infinity"),
    ],
)
def test_what_cannot_be_counted_stays_as_it_is(value: str, words: tuple[str, ...], problem: str) -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "n", value)
            with pytest.raises(RespFailure, match=f"^ERR {problem}$"):
                await say(*words)
            assert await say("GET", "n") == value.encode()
            assert home.db.status.last_seq == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("value", "change", "total"),
    [
        ("3.0", "1.1", b"4.1"),
        ("10.50", "0.1", b"10.6"),
        ("5.0e3", "2.0e2", b"5200"),
        ("1", "-1.1", b"-0.1"),
        ("0.1", "-0.1", b"0"),
        ("17179869184", "1.5", b"17179869185.5"),
        ("-1e-18", "0", b"0"),
        (".5", "1.", b"1.5"),
        ("1e20", "1", b"100000000000000000000"),
        ("1" + 300 * "0" + ".5", "-1e300", b"0"),  # a long text
        ("18446744073709551616", "1", b"18446744073709551616"),  # 65 bits: the nearest number of 64 bits
    ],
)
def test_sums_of_floats(value: str, change: str, total: bytes) -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("SET", "n", value)
            assert await say("INCRBYFLOAT", "n", change) == total
            assert await say("GET", "n") == total
            assert await say("INCRBYFLOAT", "new", "0.25") == b"0.25"

    asyncio.run(scenario())


def test_floats_are_rounded_as_the_processor_rounds_them() -> None:
    numpy = pytest.importorskip("numpy")
    if numpy.finfo(numpy.longdouble).nmant != long_double.PRECISION_BITS - 1:
        pytest.skip("this processor has other long doubles")
    rng = random.Random(17)
    for _ in range(2_000):
        texts = [f"{rng.uniform(-1, 1) * 10 ** rng.randint(-8, 12):.{rng.randint(0, 19)}f}" for _ in range(2)]
        numbers = [long_double.parse(text.encode()) for text in texts]
        assert None not in numbers
        total = long_double.rounded(sum([number for number in numbers if number is not None], Fraction()))
        assert total is not None
        exact = sum(numpy.longdouble(text) for text in texts)
        by_hand = numpy.format_float_positional(exact, precision=17, unique=False, trim="-")
        assert long_double.shown(total).decode() == ("0" if by_hand == "-0" else by_hand)


def test_the_largest_totals_can_be_read_again() -> None:
    """They have more digits than Python converts at once."""

    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            total = await say("INCRBYFLOAT", "n", "1e4900")
            assert len(total) == 4901
            assert await say("INCRBYFLOAT", "n", "1") == total
            assert await say("INCRBYFLOAT", "n", "-1e4900") == b"0"

    asyncio.run(scenario())


@pytest.mark.timeout(60)
def test_long_texts_that_are_no_numbers_are_refused_in_one_pass() -> None:
    """A search that tried every division of the digits took some minutes for these."""
    texts = [b"9" * 5_000 + end for end in (b"e\r", b".e", b"x", b"e1234567", b".9x")]
    for text in texts * 100:
        with pytest.raises(ValueError, match="not a number"):
            long_double.parse(text)


def test_digits_before_and_after_the_point_count_alike() -> None:
    texts = (b"12345.678", b"12345678e-3", b".12345678e5", b"+12345.6780e0", b"0" * 4_500 + b"12345.678")
    assert {long_double.parse(text) for text in texts} == {long_double.rounded(Fraction("12345.678"))}
    assert long_double.parse(b"1" * 4_500 + b"e-4499") == long_double.rounded(Fraction(10, 9))


def test_a_counter_keeps_its_time_of_expiry() -> None:
    async def scenario() -> None:
        async with harness(default_ttl_ms=5_000) as home:
            say = home.talker()
            await say("SET", "n", "1", "PX", "100")
            await say("INCR", "n")
            assert await say("PTTL", "n") == 100
            home.clock.ms += 100
            assert await say("INCR", "n") == 1
            assert await say("PTTL", "n") == 5_000
            await say("PERSIST", "n")
            await say("INCRBYFLOAT", "n", "0.5")
            assert await say("PTTL", "n") == -1

    asyncio.run(scenario())


@pytest.mark.parametrize("is_in_store", [False, True])
def test_counting_by_many_adds_up(is_in_store: bool) -> None:
    """The counter is flushed and read from the store, so that commands of many clients overlap."""

    async def count(home: Harness, times: int) -> list[int]:
        say = home.talker()
        return [await say("INCR", "n") for _ in range(times)]

    async def scenario() -> None:
        async with harness(block_cache_bytes=0) as home:

            async def flush_often() -> list[int]:
                for _ in range(10 if is_in_store else 0):
                    await home.db.flush("memtable")
                    await asyncio.sleep(0)
                return []

            answers = await asyncio.gather(flush_often(), *(count(home, 20) for _ in range(20)))
            assert sorted(number for part in answers for number in part) == list(range(1, 401))
            assert await home.talker()("GET", "n") == b"400"

    asyncio.run(scenario())


def test_counting_within_a_transaction() -> None:
    async def scenario() -> None:
        async with harness() as home:
            say = home.talker()
            await say("MULTI")
            await say("INCR", "n")
            await say("INCRBY", "n", "5")
            await say("INCRBYFLOAT", "n", "0.5")
            await say("INCR", "n")
            answers = await say("EXEC")
            assert answers[:3] == [1, 6, b"6.5"]
            assert isinstance(answers[3], RespFailure)
            assert await say("GET", "n") == b"6.5"
            assert home.db.status.last_seq == 1

    asyncio.run(scenario())
