"""Missing WAL files: which are named, when the end of the WAL is trusted, and which store the WAL must be in."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from shale.errors import InvalidDbState, InvalidRequestError
from shale.format.names import wal_key
from shale.protocol.wal_completeness import (
    WalGap,
    backend_name,
    find_gaps,
    is_wal_truncated,
    log_skipped,
    require_complete_wal,
    require_wal_store,
    show_gaps,
    wal_lost,
    wal_truncated,
)
from shale.protocol.wal_store import WalStore
from shale.store.memory import MemoryStore
from shale.types import ExclusiveModes, Manifest, WalId
from tests.unit.protocol.conftest import ROOT, Process, World, run


def wal_of(process: Process) -> WalStore:
    return WalStore(process.store, ROOT)


def wal_state(replay_after: int, next_id: int) -> Manifest:
    return Manifest(replay_after_wal_id=WalId(replay_after), next_wal_sst_id=WalId(next_id))


@pytest.mark.parametrize(
    ("present", "first", "last", "gaps"),
    [
        ((), 5, 4, []),
        ((), 5, 5, [(5, 5)]),
        ((), 5, 7, [(5, 7)]),
        ((5, 6, 7), 5, 7, []),
        ((6, 7), 5, 7, [(5, 5)]),
        ((5, 7), 5, 7, [(6, 6)]),
        ((5, 6), 5, 7, [(7, 7)]),
        ((3, 4, 7, 10, 11), 5, 12, [(5, 6), (8, 9), (12, 12)]),
        ((4, 8), 5, 7, [(5, 7)]),
    ],
)
def test_missing_files_between_two_ids(
    present: Sequence[int], first: int, last: int, gaps: list[tuple[int, int]]
) -> None:
    assert find_gaps(present, first, last) == tuple(WalGap(*gap) for gap in gaps)


def test_a_message_shows_ten_gaps_and_counts_the_others() -> None:
    gaps = [WalGap(10 * each, 10 * each + each % 2) for each in range(12)]
    ten = "0, 10 to 11, 20, 30 to 31, 40, 50 to 51, 60, 70 to 71, 80, 90 to 91"
    assert show_gaps(gaps[:1]) == "0"
    assert show_gaps(gaps[:10]) == ten
    assert show_gaps(gaps[:11]) == f"{ten} and 1 more ranges"
    assert show_gaps(gaps) == f"{ten} and 2 more ranges"


@pytest.mark.parametrize(
    ("gaps", "files", "rows"),
    [
        ([WalGap(7, 7)], "WAL file 7 is", "its durable rows"),
        ([WalGap(7, 8)], "WAL files 7 to 8 are", "their durable rows"),
        ([WalGap(7, 7), WalGap(9, 9)], "WAL files 7, 9 are", "their durable rows"),
    ],
)
@pytest.mark.parametrize("is_end", [False, True])
def test_lost_files_are_named(world: World, gaps: list[WalGap], files: str, rows: str, is_end: bool) -> None:
    error = wal_lost(wal_of(world.process()), gaps, is_end=is_end)
    assert str(error).startswith(f"{wal_key(ROOT, 7)}: {files} needed but gone: {rows} are not in an SST")
    assert (error.id, error.path) == (7, wal_key(ROOT, 7))
    assert ("they may never have existed" in str(error)) is is_end


def test_each_skipped_gap_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    log_skipped(wal_of(world.process()), [WalGap(3, 3), WalGap(5, 8)])
    lines = [record.getMessage() for record in caplog.records]
    assert [line.count("wal.gap_skipped") for line in lines] == [1, 1]
    assert wal_key(ROOT, 5) in lines[1]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (None, None),
        ("s3://bucket/wal", None),
        ("wal-backend:quorum", "quorum"),
        (MemoryStore(), None),
        (MemoryStore(url="wal-backend:quorum"), "quorum"),
    ],
)
def test_the_name_of_a_backend(given: MemoryStore | str | None, name: str | None) -> None:
    assert backend_name(given) == name


IN_STORE = Manifest()
IN_OTHER_STORE = Manifest(wal_object_store_uri="s3://bucket/wal")
IN_BACKEND = Manifest(exclusive=ExclusiveModes(wal_backend="quorum"))


@pytest.mark.parametrize(
    ("manifest", "given"),
    [
        (IN_STORE, None),
        (IN_STORE, "s3://bucket/wal"),
        (IN_OTHER_STORE, "s3://bucket/moved"),
        (IN_BACKEND, "wal-backend:quorum"),
    ],
)
def test_the_store_of_the_wal_is_accepted(manifest: Manifest, given: str | None) -> None:
    assert require_wal_store(manifest, "db", given) is None  # type: ignore[func-returns-value]  # it does not raise


@pytest.mark.parametrize(
    ("manifest", "place", "given", "words"),
    [
        (IN_OTHER_STORE, "db", None, r"at db keeps its WAL in s3://bucket/wal: name it with wal_store"),
        (IN_OTHER_STORE, "", None, r"at / keeps"),
        (IN_STORE, "db", "wal-backend:quorum", r"at db keeps its WAL in a store; of backends, 'quorum' was passed"),
        (IN_BACKEND, "", None, r"at / keeps its WAL in the backend 'quorum', .*; of backends, none was passed"),
        (IN_BACKEND, "db", "wal-backend:other", r"in the backend 'quorum', .*; of backends, 'other' was passed"),
        (IN_BACKEND, "db", "s3://bucket/wal", r"in the backend 'quorum', .*; of backends, none was passed"),
    ],
)
def test_another_store_of_the_wal_is_refused(manifest: Manifest, place: str, given: str | None, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        require_wal_store(manifest, place, given)


@pytest.mark.parametrize(("last_id", "is_truncated"), [(7, True), (8, False), (9, False)])
def test_a_wal_ends_before_the_next_id_of_its_manifest(last_id: int, is_truncated: bool) -> None:
    assert is_wal_truncated(wal_state(2, 9), last_id) is is_truncated


def test_the_error_names_the_first_file_and_the_last(world: World) -> None:
    words = f"{wal_key(ROOT, 6)} does not exist, though the manifest names files up to 8:"
    assert words in str(wal_truncated(wal_of(world.process()), 5, wal_state(2, 9)))


SHORT = "the WAL ends early, as after a crash of an old release"


@pytest.mark.parametrize(
    ("present", "last_id", "replayed_id", "outcome"),
    [
        pytest.param(range(3, 9), 8, 2, "complete", id="all files are there"),
        pytest.param(range(3, 7), 5, 2, "complete", id="the next file was written after the search"),
        pytest.param((*range(3, 6), 8), 5, 2, "lost", id="a file follows the missing one"),
        pytest.param((*range(3, 6), 7), 5, 2, "lost", id="a file before the last one follows it"),
        pytest.param((*range(3, 6), 8), 5, 5, "lost", id="the newest manifest needs the next file"),
        pytest.param((*range(3, 6), 8), 5, 6, "complete", id="the newest manifest needs later files alone"),
        pytest.param((3, 4, 5), 5, 2, SHORT, id="no file follows"),
        pytest.param((3, 4, 5, 9), 5, 2, SHORT, id="a file that the manifest does not name follows"),
        pytest.param((), 5, 2, "lost", id="no file at all"),
        pytest.param((), 5, 7, "complete", id="no file at all, and none is needed any more"),
    ],
)
def test_the_end_of_the_wal(
    world: World,
    present: Sequence[int],
    last_id: int,
    replayed_id: int,
    outcome: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The manifest that was read before the search names files up to 8; the newest one begins after ``replayed_id``."""

    async def main() -> None:
        process = world.process()
        wal, read = wal_of(process), wal_state(2, 9)
        await process.manifests.create_new(replace(read, replay_after_wal_id=WalId(replayed_id)))
        for wal_id in present:
            await wal.put_or_raise_fenced(wal_id, b"x")
        if outcome == "lost":
            with pytest.raises(InvalidDbState, match=wal_key(ROOT, last_id + 1)):
                await require_complete_wal(wal, process.manifests, read, last_id)
        else:
            await require_complete_wal(wal, process.manifests, read, last_id)

    run(main)
    warnings = [line for record in caplog.records if "wal.ends_early" in (line := record.getMessage())]
    assert len(warnings) == (outcome == SHORT)
    assert all(wal_key(ROOT, last_id + 1) in line for line in warnings)
    assert all(
        record.levelno == logging.WARNING for record in caplog.records if "wal.ends_early" in record.getMessage()
    )


def test_a_wal_that_is_complete_is_not_listed(world: World) -> None:
    class Unlisted(WalStore):
        async def list(self) -> list[object]:  # type: ignore[override]
            raise AssertionError("a request that an open needs not make")

    async def main() -> None:
        process = world.process()
        wal = Unlisted(process.store, ROOT)
        await require_complete_wal(wal, process.manifests, wal_state(2, 9), 8)

    run(main)
