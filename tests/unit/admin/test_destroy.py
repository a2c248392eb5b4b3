"""``Admin.destroy``: docs/protocol.md 8.8 as a program meets it."""

import pytest

from shale.admin.admin import Admin
from shale.errors import InvalidDeletion, InvalidRequestError, LatestRecordMissing
from shale.format.names import destroyed_key
from tests.unit.gc.destroy_house import House
from tests.unit.protocol.conftest import run


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_nothing_happens_without_confirmation(mode: str) -> None:
    async def main() -> None:
        house = House()
        await house.make()
        before = house.listing()
        async with Admin("db", store=house.store, env=house.env) as admin:
            told = await admin.destroy(mode)
        assert house.listing() == before == sorted(each.key for each in told.plan.objects)
        assert (told.destroyed, told.mark) == (None, None)

    run(main)


def test_a_hard_destroy_tells_what_it_has_deleted() -> None:
    async def main() -> None:
        house = House()
        await house.make()
        seen: list[str] = []
        async with Admin("db", store=house.store, env=house.env) as admin:
            kept = await admin.checkpoints.create(name="nightly")
            with pytest.raises(InvalidDeletion, match="nightly"):
                await admin.destroy(confirm=True)
            assert [each.id for each in (await admin.destroy()).plan.checkpoints] == [kept.id]
            told = await admin.destroy(confirm=True, force=True, on_deleted=lambda each: seen.append(each.key))
        assert told.destroyed is not None
        assert seen == [each.key for each in told.destroyed.objects]
        assert house.listing() == []

    run(main)


def test_the_wal_s_own_store_is_emptied_too() -> None:
    async def main() -> None:
        house = House()
        await house.make(wal_store=house.wal_store)
        async with Admin("db", store=house.store, env=house.env, wal_store=house.wal_store) as admin:
            await admin.destroy(confirm=True)
        assert (house.listing(), house.listing(house.wal_store)) == ([], [])

    run(main)


def test_a_soft_destroy_can_be_looked_at_and_turned_into_a_hard_one() -> None:
    async def main() -> None:
        house = House()
        await house.make()
        async with Admin("db", store=house.store, env=house.env) as admin:
            mark = (await admin.destroy("soft", confirm=True)).mark
            assert destroyed_key("db") in house.listing()
            assert (await admin.destroy()).mark == mark
            assert mark is not None
            await admin.destroy("hard", confirm=True)
        assert house.listing() == []

    run(main)


def test_what_cannot_be_meant_is_refused() -> None:
    async def main() -> None:
        house = House()
        async with Admin("db", store=house.store, env=house.env) as admin:
            with pytest.raises(InvalidRequestError, match="soft or hard"):
                await admin.destroy("gently")
            with pytest.raises(InvalidRequestError, match="force"):
                await admin.destroy("soft", force=True)
            with pytest.raises(LatestRecordMissing):
                await admin.destroy("soft", confirm=True)

    run(main)
