"""The JSON output of compaction requests, of the flat names, and of commands without a database."""

import json
from pathlib import Path

import anyio
import pytest

from shale.env import Env
from shale.protocol.compactions_store import CompactionsStore
from shale.store.connect import connect
from shale.types import Compactions
from tests.integration.cli.goldens import Golden


def spec(*views: str) -> str:
    """Return a request to merge L0s into the first run."""
    sources = [{"SstView": view} for view in views]
    return json.dumps({"Spec": {"Tiered": {"segment": [], "sources": sources, "destination": 0}}})


@pytest.fixture
def coordinated(url: str, tmp_path: Path) -> str:
    """Return the database with the files of a coordinator."""

    async def create() -> None:
        env = Env.system()
        store = connect(f"file://{tmp_path}", env)
        await CompactionsStore(store, "db", env).create_new(Compactions())
        await store.aclose()

    anyio.run(create)
    return url


def test_a_compaction(golden: Golden, coordinated: str) -> None:
    url = coordinated
    newest, oldest = golden.run("sst", "list", "-u", url, "-o", "csv", "--columns", "id", "--no-headers").split()
    request = spec(newest, oldest)
    golden.check("compaction-submit.dry-run", "compaction", "submit", "--request", request, "--dry-run", "-u", url)
    submitted = golden.check("compaction-submit", "compaction", "submit", "--request", request, "-u", url)
    (compaction,) = submitted["compactions"]
    golden.check("compaction-list", "compaction", "list", "-u", url)
    golden.check("compaction-status", "compaction", "status", compaction["id"], "-u", url)
    golden.check("compactions-list", "compactions", "list", "-u", url)
    golden.check("compactions-show", "compactions", "show", "-u", url)
    golden.check("read-compaction", "read-compaction", "-i", compaction["id"], "-u", url)
    golden.check("read-compactions", "read-compactions", "-i", "1", "-u", url)
    golden.check("list-compactions", "list-compactions", "-s", "2", "-e", "3", "-u", url)
    golden.check("compaction-cancel", "compaction", "cancel", compaction["id"], "--confirm", "0s", "-u", url)
    golden.check("compaction-wait", "compaction", "wait", compaction["id"], "-u", url, code=4)
    retried = golden.check("compaction-retry", "compaction", "retry", compaction["id"], "-u", url)
    golden.run("compaction", "cancel", retried["id"], "--confirm", "0s", "-u", url)
    golden.check("submit-compaction", "submit-compaction", "--request", request, "-u", url)


def test_flat_names_print_json_whatever_is_asked_for(golden: Golden, url: str) -> None:
    golden.check("read-manifest", "read-manifest", "-i", "3", "-u", url)
    golden.check("list-manifests", "list-manifests", "-s", "2", "-e", "4", "-u", url, volatile=("bytes",))
    table = golden.run("read-manifest", "-i", "3", "-o", "table", "-u", url)
    assert table == golden.run("read-manifest", "-i", "3", "-o", "json", "-u", url)


def test_without_a_database(golden: Golden) -> None:
    golden.check("plan", "plan", "--rate", "5MiB", "--gets", "100")
    golden.check("help-options", "help", "options")
