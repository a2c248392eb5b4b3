"""Commit records of a simulation in a real transactional store (``SHALE_TEST_CAS``, ``tests/cas_selection.py``)."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from shale.store.transactional.connect import open_transactional_store
from shale.store.transactional.memory import MemoryTransactionalStore
from shale.store.transactional.port import TransactionalStore

OPERATIONS = (
    *("insert", "get", "set_committed", "set_deleted", "remove_deleted", "unfinished", "records"),
    *("low_water_mark", "raise_low_water_mark", "low_water_marks", "import_committed", "remove_all"),
)
_REQUEST_S = 60.0


class DriverRecords(MemoryTransactionalStore):
    """Records in a driver, and the same ones in memory for the invariants of the simulation; both answer the same.

    The driver has an event loop of its own, in a thread; simulated time stands still while it is called.
    """

    def __init__(self, driver: TransactionalStore, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._driver = driver
        self._loop = loop
        self.request("remove_all", "")

    def request(self, operation: str, *args: Any) -> Any:
        """Call the driver and wait for its answer."""
        started = asyncio.run_coroutine_threadsafe(getattr(self._driver, operation)(*args), self._loop)
        return started.result(_REQUEST_S)


def _in_both(operation: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    in_memory = getattr(MemoryTransactionalStore, operation)

    async def call(self: DriverRecords, *args: Any) -> Any:
        expected = await in_memory(self, *args)
        found = self.request(operation, *args)
        assert found == expected, f"{operation}{args}: {found}, in memory {expected}"
        return found

    return call


for _operation in OPERATIONS:
    setattr(DriverRecords, _operation, _in_both(_operation))


class _Opened:
    """The driver of the last URL; a thread runs the event loop of all drivers."""

    def __init__(self) -> None:
        self.url = ""
        self.driver: TransactionalStore | None = None
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="records", daemon=True).start()

    async def open(self, url: str) -> TransactionalStore:
        """Open a driver, and close the one before."""
        if self.driver is None or self.url != url:
            if self.driver is not None:
                await self.driver.aclose()
            self.url, self.driver = url, open_transactional_store(url)
        return self.driver


_opened: list[_Opened] = []


def driver_records(url: str) -> DriverRecords:
    """Return the records of a new simulation in this transactional store, which is emptied."""
    if not _opened:
        _opened.append(_Opened())
    loop = _opened[0].loop
    driver = asyncio.run_coroutine_threadsafe(_opened[0].open(url), loop).result(_REQUEST_S)
    return DriverRecords(driver, loop)
