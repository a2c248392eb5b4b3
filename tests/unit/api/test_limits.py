"""Limits that all routes of a data port share."""

import asyncio

from shale.api.limits import Limits
from shale.api.settings import HttpSection
from shale.env import Env
from shale.service.process import PortServices
from shale.telemetry.metrics import Metrics


def test_one_large_response_is_made_at_a_time_where_memory_has_room_for_one() -> None:
    async def scenario() -> None:
        services = PortServices()
        services.memory.responses.capacity_bytes = 1 << 20
        limits = Limits(HttpSection(), Metrics(), Env.system(), services)
        made: list[str] = []
        goes_on = asyncio.Event()

        async def make(name: str) -> None:
            async with limits.large_response():
                made.append(name)
                await goes_on.wait()

        first = asyncio.create_task(make("first"))
        second = asyncio.create_task(make("second"))
        for _ in range(50):
            await asyncio.sleep(0)
        assert made == ["first"]
        goes_on.set()
        await asyncio.gather(first, second)
        assert made == ["first", "second"]

    asyncio.run(scenario())
