"""How memory is divided, and what happens when it is full."""

import pytest

from shale.core.memory_plan import (
    MIB,
    PROCESS_BYTES,
    BoundedSize,
    MemoryShare,
    MemoryState,
    decide_memory,
    divide_memory,
    needed_bytes,
    shown_sum,
)

TABLES = MemoryShare(
    name="tables",
    default=1024 * MIB,
    least=4 * MIB,
    weight=3,
    factor=1.75,
    bounds=(BoundedSize("table", 64 * MIB, 0.25, 2.0),),
)
CACHE = MemoryShare(name="cache", default=256 * MIB, least=2 * MIB, weight=2)
BODIES = MemoryShare(name="bodies", default=16 * MIB, least=MIB, weight=1)
SHARES = (TABLES, CACHE, BODIES)


def test_much_memory_gives_the_defaults() -> None:
    """Where memory is not scarce nothing changes."""
    values = divide_memory(8192 * MIB, SHARES, {})
    assert values == {"tables": 1024 * MIB, "cache": 256 * MIB, "bodies": 16 * MIB, "table": 64 * MIB}


@pytest.mark.parametrize("limit_mib", [128, 179, 256, 358, 700, 1400, 2000])
def test_all_parts_together_stay_below_the_limit(limit_mib: int) -> None:
    """Whatever the limit is, as long as the process itself fits."""
    values = divide_memory(limit_mib * MIB, SHARES, {})
    assert needed_bytes(SHARES, values) <= limit_mib * MIB
    assert values["table"] <= values["tables"] // 4


def test_what_one_part_does_not_need_goes_to_the_others() -> None:
    """The bodies take their default, and the others nearly all of the rest."""
    values = divide_memory(1000 * MIB, SHARES, {})
    assert values["bodies"] == 16 * MIB
    assert needed_bytes(SHARES, values) > 999 * MIB


def test_a_given_size_leaves_less_for_the_others() -> None:
    """It stays as it is, and so do the sizes that it bounds."""
    values = divide_memory(358 * MIB, SHARES, {"tables": 100 * MIB})
    assert "tables" not in values
    assert "table" not in values
    assert needed_bytes(SHARES, {**values, "tables": 100 * MIB}) <= 358 * MIB


def test_a_bounded_size_that_is_given_raises_its_share() -> None:
    """A table of 32 MiB needs memory for two."""
    assert divide_memory(128 * MIB, SHARES, {"table": 32 * MIB})["tables"] == 64 * MIB


def test_too_little_memory_gives_the_least_values() -> None:
    """The sum then says that they do not fit."""
    values = divide_memory(PROCESS_BYTES, SHARES, {})
    assert [values[share.name] for share in SHARES] == [4 * MIB, 2 * MIB, MIB]
    assert shown_sum(SHARES, values) == (
        "the process (80.0 MiB) + 1.75 x tables (4.0 MiB) + cache (2.0 MiB) + bodies (1.0 MiB) = 90.0 MiB"
    )


CLIENTS = MemoryShare(
    name="clients",
    default=4096,
    least=64,
    weight=1,
    factor=16384,
    counts=True,
    bounds=(BoundedSize("clients_of_one", 2048, 0.5, 0.0),),
)


@pytest.mark.parametrize(("limit_mib", "expected"), [(80, 64), (112, 512), (144, 1024), (4096, 4096)])
def test_a_number_of_things_follows_from_memory(limit_mib: int, expected: int) -> None:
    """A quarter of what is left, in units of 16 KiB, but at least the least number."""
    others = MemoryShare(name="others", default=4096 * MIB, least=0, weight=3)
    values = divide_memory(limit_mib * MIB, (CLIENTS, others), {})
    assert (values["clients"], values["clients_of_one"]) == (expected, expected // 2)


@pytest.mark.parametrize("limit_mib", [89, 90, 100])
def test_a_setting_that_gets_more_than_its_weight_leaves_less_to_the_others(limit_mib: int) -> None:
    """The least value comes first: together they stay below the limit as long as all have it."""
    shares = (CLIENTS, MemoryShare(name="others", default=4096 * MIB, least=6 * MIB, weight=1, factor=1.25))
    values = divide_memory(limit_mib * MIB, shares, {})
    assert values["clients"] >= 64
    assert values["others"] >= 6 * MIB
    assert limit_mib * MIB - MIB // 8 < needed_bytes(shares, values) <= limit_mib * MIB


def test_a_bounded_size_that_is_given_may_raise_its_share_above_the_default() -> None:
    """Also where there is memory for more."""
    assert divide_memory(8192 * MIB, SHARES, {"table": 1024 * MIB})["tables"] == 2048 * MIB


def test_a_given_number_of_one_does_not_raise_that_of_all() -> None:
    """A limit that another one makes needless is not an error."""
    assert divide_memory(PROCESS_BYTES, (CLIENTS,), {"clients_of_one": 2048}) == {"clients": 64}


def test_the_sum_shows_a_number_with_the_size_of_each() -> None:
    """Not as a size."""
    assert shown_sum((CLIENTS,), {"clients": 1024}) == "the process (80.0 MiB) + 16.0 KiB x clients (1024) = 96.0 MiB"


LIMIT = 1000 * MIB


def _state(held_mib: int, *, cache: int = 256, used: int = 256, is_full: bool = False) -> MemoryState:
    return MemoryState(held_mib * MIB, cache * MIB, used * MIB, is_full)


def test_nothing_happens_below_nine_tenths() -> None:
    """The caches keep their bytes."""
    assert decide_memory(LIMIT, 256 * MIB, _state(890)) == (256 * MIB, False, False)


def test_caches_shrink_first() -> None:
    """By what is too much, and no write is refused."""
    assert decide_memory(LIMIT, 256 * MIB, _state(950)) == (206 * MIB, False, True)


def test_caches_keep_a_floor() -> None:
    """An eighth: without indexes every read would go to the store."""
    assert decide_memory(LIMIT, 256 * MIB, _state(1400, used=40)).cache_bytes == 32 * MIB


def test_writes_are_refused_at_the_limit_until_there_is_some_room() -> None:
    """Not on and off at each tick."""
    assert decide_memory(LIMIT, 256 * MIB, _state(1000)).is_full
    assert not decide_memory(LIMIT, 256 * MIB, _state(970)).is_full
    assert decide_memory(LIMIT, 256 * MIB, _state(970, is_full=True)).is_full
    assert not decide_memory(LIMIT, 256 * MIB, _state(950, is_full=True)).is_full


def test_caches_grow_again_step_by_step() -> None:
    """By half of the room at a time, up to their default."""
    assert decide_memory(LIMIT, 256 * MIB, _state(700, cache=64)).cache_bytes == 114 * MIB
    assert decide_memory(LIMIT, 256 * MIB, _state(850, cache=64)).cache_bytes == 64 * MIB
    assert decide_memory(LIMIT, 256 * MIB, _state(100, cache=64)).cache_bytes == 256 * MIB
