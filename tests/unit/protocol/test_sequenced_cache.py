"""What a process knows of the newest file: which requests it saves, and when it is no proof any more."""

import pytest

from shale.errors import ObjectVersionExists
from shale.format.names import manifest_key
from shale.protocol.sequenced import OLD_LISTS_MAX, Created
from shale.protocol.versioned import VersionMeta
from shale.store.port import PUT_ID
from tests.clocks import START_MS
from tests.unit.protocol.conftest import run
from tests.unit.protocol.draws import doubling
from tests.unit.protocol.sequenced_process import STALENESS_S, Process


def test_a_probe_confirms_what_is_known() -> None:
    async def main() -> None:
        process = Process()
        await process.written(1, 2, 3)
        assert (await process.latest(), process.requests()) == (3, ["list", "get 3"])
        assert process.reads() == {"hit": 0, "cold": 1, "list_fallback": 0, "reads": 0, "probes": 0}
        assert (await process.latest(), process.requests()) == (3, ["get 4"])
        assert process.reads() == {"hit": 1, "cold": 1, "list_fallback": 0, "reads": 1, "probes": 0}
        await process.written(4, 5, 6)
        assert (await process.latest(), process.requests()) == (6, ["get 4", "get 5", "get 6", "get 7"])
        assert process.reads() == {"hit": 2, "cold": 1, "list_fallback": 0, "reads": 2, "probes": 3}
        await process.written(7, 8, 9, 10)
        assert await process.latest() == 10
        assert process.requests() == ["get 7", "get 8", "get 9", "get 10", "list"]
        assert process.reads() == {"hit": 2, "cold": 1, "list_fallback": 1, "reads": 3, "probes": 7}

    run(main)


def test_after_a_conflict_two_ids_are_probed_at_once() -> None:
    async def main() -> None:
        process = Process()
        await process.written(1)
        assert (await process.latest(after_conflict=True), process.requests()) == (1, ["list", "get 1"])
        await process.written(2)
        assert (await process.latest(after_conflict=True), process.requests()) == (2, ["get 2", "get 3"])
        await process.written(3, 4, 5, 6)
        assert await process.latest(after_conflict=True) == 6
        assert process.requests() == ["get 3", "get 4", "get 5", "get 6", "list"]
        process.clock.sleep(STALENESS_S)
        assert (await process.latest(after_conflict=True), process.requests()) == (6, ["list"])

    run(main)


@pytest.mark.parametrize(("age_ms", "requests"), [(59_999, ["get 4"]), (60_000, ["list"])])
def test_a_proof_ends_with_its_age(age_ms: int, requests: list[str]) -> None:
    """A listing of the file that is known costs no read of it, and no question whether it exists."""

    async def main() -> None:
        process = Process()
        await process.written(1, 2, 3)
        await process.latest()
        process.requests()
        process.clock.ms += age_ms
        assert (await process.latest(), process.requests()) == (3, requests)

    run(main)


def test_a_probe_that_takes_longer_than_the_proof_is_none() -> None:
    async def main() -> None:
        process = Process()
        await process.written(1)
        await process.latest()
        process.requests()
        process.store.get_takes_s = STALENESS_S
        assert (await process.latest(), process.requests()) == (1, ["get 2", "list"])
        assert process.reads() == {"hit": 0, "cold": 2, "list_fallback": 0, "reads": 1, "probes": 0}

    run(main)


def test_the_proof_of_a_probe_is_as_old_as_its_start() -> None:
    async def main() -> None:
        process = Process()
        await process.written(1)
        await process.latest()
        process.store.get_takes_s = 40
        await process.latest()
        process.store.get_takes_s = 0
        process.requests()
        for seconds in (19, 59):
            process.clock.sleep(seconds)
            assert (await process.latest(), process.requests()) == (1, ["get 2"])
        process.clock.sleep(60)
        assert (await process.latest(), process.requests()) == (1, ["list"])

    run(main)


def test_a_hit_proves_nothing_about_later_files() -> None:
    """The age of what a probe finds is that of the older proof."""

    async def main() -> None:
        process = Process()
        await process.written(1)
        await process.latest()
        process.clock.sleep(30)
        await process.written(2)
        process.store.get_takes_s = 20
        assert await process.latest() == 2, "the first probe at 50 s found a file, the second at 70 s found none"
        assert process.requests() == ["get 2", "get 3", "list"]

    run(main)


def test_a_listing_tells_when_the_newest_file_was_written() -> None:
    async def main() -> None:
        process = Process()
        await process.written(1, 2)
        process.clock.sleep(5)
        await process.written(3)
        listed = await process.files.read_latest_unchecked()
        assert listed is not None
        assert listed.modified_ms == START_MS + 5_000
        assert list(await process.files.list_versions()) == [
            VersionMeta(1, START_MS, 1),
            VersionMeta(2, START_MS, 1),
            VersionMeta(3, START_MS + 5_000, 1),
        ]
        await process.written(4)
        probed = await process.files.read_latest_unchecked()
        assert probed is not None
        assert (probed.id, probed.modified_ms) == (4, None)

    run(main)


@pytest.mark.parametrize("base_id", [1, 2])
def test_a_create_below_the_known_file_makes_no_request(base_id: int) -> None:
    """The ids may be deleted meanwhile: a create would succeed."""

    async def main() -> None:
        process = Process()
        await process.written(1, 2, 3)
        await process.latest()
        for id_ in (2, 3):
            await process.store.delete(manifest_key("db", id_))
        process.requests()
        with pytest.raises(ObjectVersionExists, match="version 3 is known already"):
            await process.files.create(base_id, b"x")
        assert process.requests() == []

    run(main)


def test_a_taken_id_is_refused() -> None:
    async def main() -> None:
        process = Process()
        await process.written(1)
        for base_id in (None, 0):
            with pytest.raises(ObjectVersionExists, match=manifest_key("db", 1)):
                await process.files.create(base_id, b"x")

    run(main)


def test_the_first_file_is_proven_newest_after_an_empty_listing() -> None:
    async def main() -> None:
        unread, read, late = Process(), Process(), Process()
        assert await unread.files.create(None, b"1") == Created(1, is_proven_newest=False)
        assert await read.latest() is None
        assert await read.files.create(None, b"1") == Created(1, is_proven_newest=True)
        assert await late.latest() is None
        late.clock.sleep(STALENESS_S)
        assert await late.files.create(None, b"1") == Created(1, is_proven_newest=False)

    run(main)


def test_what_this_process_created_on_a_proof_is_known() -> None:
    async def main() -> None:
        process = Process()
        await process.written(1)
        assert await process.files.create(1, b"2") == Created(2, is_proven_newest=False), "nothing was read before"
        assert (await process.latest(), process.requests()) == (2, ["put 2", "list", "get 2"])
        process.clock.sleep(59)
        assert await process.files.create(2, b"3") == Created(3, is_proven_newest=True)
        process.clock.sleep(59)
        process.requests()
        assert (await process.latest(), process.requests()) == (3, ["get 4"])
        process.clock.sleep(60)
        assert await process.files.create(3, b"4") == Created(4, is_proven_newest=False)

    run(main)


def test_a_file_that_is_not_proven_newest_is_compared_with_a_listing() -> None:
    async def main() -> None:
        process = Process()
        proven, late = Created(2, is_proven_newest=True), Created(2, is_proven_newest=False)
        await process.files.require_newest(late)
        await process.written(1, 2)
        await process.files.require_newest(late)
        assert process.requests() == ["list"]
        await process.written(3)
        await process.files.require_newest(proven)
        assert process.requests() == []
        with pytest.raises(ObjectVersionExists, match="created too late"):
            await process.files.require_newest(late)

    run(main)


@pytest.mark.parametrize("is_many", [False, True])
def test_a_deleted_file_is_not_known_any_more(is_many: bool) -> None:
    async def main() -> None:
        process = Process()
        await process.written(1, 2, 3)
        await process.latest()
        for id_, requests in ((2, ["get 4"]), (3, ["list", "get 1"])):
            if is_many:
                assert await process.files.delete_many([id_]) == {}
            else:
                await process.files.delete(id_)
            process.requests()
            await process.latest()
            assert process.requests() == requests
            assert not await process.files.has(id_)
        assert await process.files.has(1)

    run(main)


def test_files_that_could_not_be_deleted_are_told() -> None:
    async def main() -> None:
        process = Process()
        await process.written(1, 2)
        process.store.broken = {manifest_key("db", 2)}
        assert list(await process.files.delete_many([1, 2])) == [manifest_key("db", 2)]

    run(main)


def test_a_database_that_vanished_can_be_created_again() -> None:
    async def main() -> None:
        process = Process()
        await process.written(1, 2, 3)
        await process.latest()
        process.store.objects.clear()
        process.clock.sleep(STALENESS_S)
        assert await process.latest() is None
        assert await process.files.create(None, b"1") == Created(1, is_proven_newest=True)

    run(main)


@pytest.mark.parametrize("old", [4, OLD_LISTS_MAX, OLD_LISTS_MAX + 1])
@pytest.mark.parametrize("listed", [[1, 2], []])
def test_a_list_that_is_older_than_what_is_known_is_repeated(listed: list[int], old: int) -> None:
    """Also an empty one, made before the database was created: it must not look as if the database were deleted."""

    async def main() -> None:
        process = Process()
        await process.written(1, 2, 3)
        await process.latest()
        process.clock.sleep(STALENESS_S)
        process.store.lists = [listed] * old
        process.requests()
        believed = old > OLD_LISTS_MAX
        assert await process.latest() == (max(listed, default=None) if believed else 3)
        asked = min(old, OLD_LISTS_MAX)
        assert process.requests() == ["list", "head 3"] * asked + ["list"] + ["get 2"] * (believed and bool(listed))
        assert process.draws.limits == pytest.approx(doubling(asked - 3))

    run(main)


def test_a_listed_file_that_vanished_is_looked_for_with_growing_delays() -> None:
    async def main() -> None:
        process = Process()
        await process.written(9)
        process.store.lists = [[3], [4], [5], [6], [7]]
        assert await process.latest() == 9
        assert process.requests() == [
            "list",
            "get 3",
            "list",
            "get 4",
            "list",
            "get 5",
            "list",
            "get 6",
            "list",
            "get 7",
            "list",
            "get 9",
        ]
        assert process.draws.limits == pytest.approx(doubling(2))

    run(main)


@pytest.mark.parametrize(
    ("url", "attributes", "may_be"),
    [
        ("memory:///", None, False),
        ("file:///tmp/db", None, False),
        ("s3://bucket", None, True),
        ("s3://bucket", {}, True),
        ("s3://bucket", {"other": "x"}, True),
        ("s3://bucket", {PUT_ID: "x"}, False),
    ],
)
def test_a_put_without_an_id_may_have_been_repeated(url: str, attributes: dict[str, str] | None, may_be: bool) -> None:
    async def main() -> None:
        process = Process(url)
        await process.store.put(manifest_key("db", 1), b"x", attributes=attributes)
        assert await process.files.may_be_duplicate(1) is may_be
        assert await process.files.may_be_duplicate(2) is url.startswith("s3:"), "a file that is gone tells nothing"

    run(main)


def test_a_missing_file_is_none() -> None:
    async def main() -> None:
        process = Process()
        await process.written(1)
        assert await process.files.read(1) == b"1"
        assert await process.files.read(2) is None

    run(main)
