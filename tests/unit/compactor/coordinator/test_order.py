"""Compactions are read before the manifest and written after it (docs/reference/protocol.md 6.1)."""

import pytest

from shale.store.memory import MemoryStore
from tests.unit.compactor.harness import Harness
from tests.unit.compactor.values import manifest, tree

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Watched(MemoryStore):
    """A store that records in which of the two directories an object is read and written."""

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
        """Return the recorded steps since the last call, without repetitions."""
        steps = [step for before, step in zip(["", *self.seen], self.seen, strict=False) if step != before]
        self.seen.clear()
        return steps


@pytest.mark.parametrize("fast", [False, True])
async def test_both_orders(fast):
    harness = await Harness(manifest(tree((4, 3, 2, 1))), store=Watched).create()
    coordinator = await harness.started()
    harness.store.steps()
    await coordinator.run_round()
    assert harness.store.steps() == ["read compactions", "read manifest", "write compactions"]
    await harness.claim_and_finish()
    harness.store.steps()
    await (coordinator.run_commit_round if fast else coordinator.run_round)()
    assert harness.store.steps() == ["read compactions", "read manifest", "write manifest", "write compactions"]
