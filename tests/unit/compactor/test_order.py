"""Compactions are read before the manifest and written after it (docs/protocol.md 6.1)."""

import pytest

from shale.store.memory import MemoryStore
from tests.unit.compactor.house import House
from tests.unit.compactor.values import manifest, tree

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Watched(MemoryStore):
    """Notes in which of the two directories something is asked for and stored."""

    def __init__(self, clock):
        super().__init__(clock)
        self.seen: list[str] = []

    async def get(self, key):
        self._note("read", key)
        return await super().get(key)

    async def put(self, key, data, **options):
        self._note("write", key)
        return await super().put(key, data, **options)

    def _note(self, what, key):
        for directory in ("manifest", "compactions"):
            if f"/{directory}/" in key:
                self.seen.append(f"{what} {directory}")

    def steps(self):
        """What was noted since the last question, repetitions left out."""
        steps = [step for before, step in zip(["", *self.seen], self.seen, strict=False) if step != before]
        self.seen.clear()
        return steps


@pytest.mark.parametrize("fast", [False, True])
async def test_both_orders(fast):
    house = await House(manifest(tree((4, 3, 2, 1))), store=Watched).create()
    coordinator = await house.started()
    house.store.steps()
    await coordinator.tick()
    assert house.store.steps() == ["read compactions", "read manifest", "write compactions"]
    await house.claim_and_finish()
    house.store.steps()
    await (coordinator.commit_tick if fast else coordinator.tick)()
    assert house.store.steps() == ["read compactions", "read manifest", "write manifest", "write compactions"]
