"""What a process that opens a database, puts and gets must not import: each of these packages would make it slower."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

OPEN_PUT_GET = """
import asyncio, sys, shale
async def work():
    async with shale.Db.open({url!r}) as db:
        await (await db.put(b"key", b"value")).durable()
        assert await db.get(b"key") == b"value"
        assert await db.get(b"absent") is None
        print(*sys.modules)
asyncio.run(work())
"""
UNUSED = {
    "attr", "backports.zstd", "cramjam", "cryptography", "email", "httpx", "importlib.metadata", "json", "llvmlite",
    "msgpack", "numba", "obstore", "orjson", "pandas", "prometheus_client", "pyarrow", "pydantic", "pygments",
    "pyspark", "rich", "shale_cli", "starlette", "structlog", "tempfile", "tomllib", "typer", "ulid", "uvicorn",
    "uvloop", "yaml",
    "shale.admin", "shale.api", "shale.client", "shale.clones", "shale.engine.arrow", "shale.engine.db_cache",
    "shale.engine.db_reader", "shale.engine.load", "shale.engine.mapping", "shale.engine.scan", "shale.engine.txn",
    "shale.gc", "shale.kernels.compiler", "shale.kernels.source", "shale.resp", "shale.server", "shale.service",
    "shale.sst.disk_cache", "shale.store.cloud_store", "shale.store.memory", "shale.sync", "shale.testing",
}  # fmt: skip


def modules_after(program: str) -> set[str]:
    """Return the modules of a new process at the end of a program."""
    return modules_told_by(f"{program}\nimport sys\nprint(*sys.modules)")


def modules_told_by(program: str) -> set[str]:
    """Return the modules that a program prints in a new process without settings, which would import their readers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SHALE_", "SLATEDB_"))}
    environment = {**kept, "PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=REPOSITORY,
        timeout=60,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("opened", ["created", "reopened"])
def test_a_first_put_and_get_import_only_what_they_need(opened: str, tmp_path: Path) -> None:
    """Also for a database that exists, whose rows are in an SST.  A flush, as ``close`` makes one, takes more."""
    program = OPEN_PUT_GET.format(url=f"file://{tmp_path}/db")
    if opened == "reopened":
        modules_told_by(program)
    assert sorted(modules_told_by(program) & UNUSED) == []


def test_importing_the_package_imports_nothing_else() -> None:
    """Names are loaded when they are first used."""
    loaded = modules_after("import shale") - modules_after("")
    assert {name for name in loaded if name.startswith("shale")} == {
        "shale",
        "shale.core",
        "shale.core.lazy_names",
    }
    assert not {"numpy", "asyncio", "anyio"} & loaded


def test_a_daemon_imports_no_rich() -> None:
    """structlog would import it for the tracebacks of a console."""
    for name in ("writer", "compactor", "gc", "reader"):
        loaded = modules_after(f"import shale_{name}.__main__")
        assert "structlog" in loaded
        assert sorted(loaded & {"attr", "pygments", "rich"}) == []


def test_the_settings_of_a_command_load_no_arrays() -> None:
    """``shale up`` waits for its daemons and needs no kernel."""
    loaded = modules_after("import shale_cli.framework.settings, shale_cli.commands.up.stack")
    assert sorted(loaded & {"numpy", "structlog", "rich", "prometheus_client"}) == []


def test_the_supervisor_of_daemons_loads_no_settings() -> None:
    """``shale up`` passes them to its daemons; it holds its own memory as long as they run."""
    program = """
from shale_cli.__main__ import main
import shale_cli.commands.up.stack as stack
async def run_stack(plan, session): return 7
stack.run_stack = run_stack
assert main(["up", "-q", "-u", "file:///data/db"]) == 7
"""
    assert sorted(modules_after(program) & {"numpy", "pydantic", "rich", "structlog", "yaml"}) == []
