"""``Admin.destroy``: docs/reference/protocol.md 8.8 through the Python API."""

import pytest

from shale.admin.admin import Admin
from shale.errors import InvalidDeletion, InvalidRequestError, LatestRecordMissing
from shale.format.names import destroyed_key
from tests.unit.gc.destroy_harness import Harness
from tests.unit.protocol.conftest import run


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_nothing_happens_without_confirmation(mode: str) -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        before = harness.listing()
        async with Admin("db", store=harness.store, env=harness.env) as admin:
            told = await admin.destroy(mode)
        assert harness.listing() == before == sorted(each.key for each in told.plan.objects)
        assert (told.destroyed, told.mark) == (None, None)

    run(main)


def test_a_hard_destroy_tells_what_it_has_deleted() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        seen: list[str] = []
        async with Admin("db", store=harness.store, env=harness.env) as admin:
            kept = await admin.checkpoints.create(name="nightly")
            with pytest.raises(InvalidDeletion, match="nightly"):
                await admin.destroy(confirm=True)
            assert [each.id for each in (await admin.destroy()).plan.checkpoints] == [kept.id]
            told = await admin.destroy(confirm=True, force=True, on_deleted=lambda each: seen.append(each.key))
        assert told.destroyed is not None
        assert seen == [each.key for each in told.destroyed.objects]
        assert harness.listing() == []

    run(main)


def test_the_wal_s_own_store_is_emptied_too() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make(wal_store=harness.wal_store)
        async with Admin("db", store=harness.store, env=harness.env, wal_store=harness.wal_store) as admin:
            await admin.destroy(confirm=True)
        assert (harness.listing(), harness.listing(harness.wal_store)) == ([], [])

    run(main)


def test_a_soft_destroy_can_be_looked_at_and_turned_into_a_hard_one() -> None:
    async def main() -> None:
        harness = Harness()
        await harness.make()
        async with Admin("db", store=harness.store, env=harness.env) as admin:
            mark = (await admin.destroy("soft", confirm=True)).mark
            assert destroyed_key("db") in harness.listing()
            assert (await admin.destroy()).mark == mark
            assert mark is not None
            await admin.destroy("hard", confirm=True)
        assert harness.listing() == []

    run(main)


def test_what_cannot_be_meant_is_refused() -> None:
    async def main() -> None:
        harness = Harness()
        async with Admin("db", store=harness.store, env=harness.env) as admin:
            with pytest.raises(InvalidRequestError, match="soft or hard"):
                await admin.destroy("gently")
            with pytest.raises(InvalidRequestError, match="force"):
                await admin.destroy("soft", force=True)
            with pytest.raises(LatestRecordMissing):
                await admin.destroy("soft", confirm=True)

    run(main)
