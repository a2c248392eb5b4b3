"""The applications of docs/how-to/web-frameworks.md answer requests, and a second worker of them does not start."""

import contextlib
import importlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import shale
from tests.code_blocks import blocks
from tests.paths import REPOSITORY

pytestmark = pytest.mark.anyio
APPLICATIONS = [each.text for each in blocks(REPOSITORY / "docs/how-to/web-frameworks.md") if "\napp = " in each.text]
Load = Callable[[str], Any]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Import the program of a page as ``main``, with its database in a folder of this test; return its application."""

    def load(text: str) -> Any:
        (tmp_path / "main.py").write_text(text.replace("/tmp/shale", str(tmp_path)))
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "main", raising=False)
        return importlib.import_module("main").app

    return load


@contextlib.asynccontextmanager
async def started(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://app") as client,
    ):
        yield client


async def test_fastapi(load: Load) -> None:
    app = load(APPLICATIONS[0])
    async with started(app) as client:
        assert (await client.get("/items/tea")).status_code == 404
        assert (await client.put("/items/tea", params={"value": "two pots"})).status_code == 204
    async with started(app) as client:
        assert (await client.get("/items/tea")).json() == {"value": "two pots"}


async def test_starlette(load: Load) -> None:
    async with started(load(APPLICATIONS[1])) as client:
        assert (await client.get("/tea")).status_code == 404
        assert (await client.put("/tea", content=b"two pots")).status_code == 204
        assert (await client.get("/tea")).content == b"two pots"


@pytest.mark.parametrize("text", APPLICATIONS, ids=["fastapi", "starlette"])
async def test_a_second_worker_does_not_start(load: Load, text: str) -> None:
    app = load(text)
    async with started(app) as client:
        with pytest.raises(shale.LiveWriter, match=r"is running.*one writer"):
            async with started(app):
                pass
        assert (await client.get("/items/tea")).status_code == 404
