"""Runs of ordinary tests on databases with two-phase creates: ``SHALE_TEST_CAS=sqlite`` or ``postgresql``.

Each test gets commit records of its own.  Stores that are opened in the process of the test, daemons and commands have
the two settings of the mode, unless the test sets others.  The S3 server ignores conditions, as those for which the
mode is made.  The simulations have a variable of their own (``tests/simulation/conftest.py``).
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from shale.types import CasMode

VARIABLE = "SHALE_TEST_CAS"
SETTINGS = {"cas": "SHALE_STORE__CAS", "transactional_url": "SHALE_STORE__TRANSACTIONAL_URL"}
_COMPILED = 5
"""After so many instances a dataclass has its final ``__init__``."""


def selected() -> str | None:
    """Return the kind of transactional store that tests run on; ``None``: the store's own conditional writes."""
    return os.environ.get(VARIABLE) or None


def environment() -> dict[str, str]:
    """Return the settings of the mode, for a process that does not inherit all variables of the test."""
    return {} if selected() is None else {name: os.environ[name] for name in SETTINGS.values()}


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; refuse a kind that does not exist."""
    config.addinivalue_line("markers", "native_only(reason): the test is about conditional writes of the store")
    if selected() not in {None, "sqlite", "postgresql"}:
        raise pytest.UsageError(f"{VARIABLE}={selected()}: sqlite or postgresql")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of conditional writes."""
    mark = item.get_closest_marker("native_only")
    if mark is not None and selected() is not None:
        pytest.skip(f"native only: {mark.args[0]}")


@pytest.fixture(scope="session")
def new_records_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Return a function that makes a transactional store of the selected kind, and returns its URL."""
    with ExitStack() as stack:
        if selected() == "sqlite":
            folder = tmp_path_factory.mktemp("records")
            new = _new_file(folder)
        else:
            from tests.integration.store.database_servers import postgresql

            new = _new_database(stack.enter_context(postgresql()))
        yield lambda: _with_tables(new())


@pytest.fixture(autouse=True)
def _two_phase_creates(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if selected() is None:
        return
    url = request.getfixturevalue("new_records_url")()
    for name, value in zip(SETTINGS, (CasMode.TWO_PHASE.value, url), strict=True):
        monkeypatch.setenv(SETTINGS[name], value)
    _set_defaults(monkeypatch, cas=CasMode.TWO_PHASE, transactional_url=url)


def _set_defaults(monkeypatch: pytest.MonkeyPatch, **defaults: Any) -> None:
    from shale.store.options import StoreOptions

    for _ in range(_COMPILED):
        StoreOptions()
    initialize = StoreOptions.__init__

    def with_defaults(self: StoreOptions, **values: Any) -> None:
        initialize(self, **(defaults | values))

    monkeypatch.setattr(StoreOptions, "__init__", with_defaults)


def _new_file(folder: Path) -> Callable[[], str]:
    numbers = count()
    return lambda: f"sqlite://{folder}/{next(numbers)}.db"


def _new_database(url: str) -> Callable[[], str]:
    import psycopg
    from psycopg import sql

    numbers = count()

    def new() -> str:
        name = f"records{next(numbers)}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return urlsplit(url)._replace(path=f"/{name}").geturl()

    return new


def _with_tables(url: str) -> str:
    from shale.store.transactional.connect import open_transactional_store

    async def create() -> None:
        records = open_transactional_store(url)
        await records.create_schema()
        await records.aclose()

    asyncio.run(create())
    return url
