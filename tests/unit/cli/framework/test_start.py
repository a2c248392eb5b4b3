"""Help, completion and usage errors load few modules, so they are fast."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "numpy", "numba", "obstore", "pydantic", "starlette", "rich", "anyio", "structlog", "httpx", "pyarrow", "yaml",
    "orjson", "msgpack", "prometheus_client",
)  # fmt: skip


def loaded(program: str) -> list[str]:
    """Return the heavy modules that a program in a new process has imported."""
    told = f"{program}; print('LOADED', *({{name.partition('.')[0] for name in sys.modules}} & {set(HEAVY)!r}))"
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""}
    ended = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    return ended.stdout.splitlines()[-1].split()[1:]


def test_the_command_line_is_light() -> None:
    """Help and completion, which load every noun of Shale, import no heavy module."""
    program = (
        "import sys, typer; import shale_cli.__main__, shale_cli.framework.app; "
        "from shale_cli.framework import registry; "
        "registry.register(typer.Typer(), None)"
    )
    assert loaded(program) == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["--help"], 0),
        (["kv", "scan", "--help"], 0),
        ([], 2),
        (["kv"], 2),
        (["nonsense"], 2),
        (["kv", "gett"], 2),
        (["kv", "get"], 2),
        (["kv", "get", "a", "b"], 2),
        (["kv", "scan", "--limt", "5"], 2),
        (["kv", "scan", "--limit"], 2),
        (["refresh-checkpoint"], 2),
        (["-o", "xml", "kv", "get", "a"], 2),
    ],
)
def test_help_and_slips_load_nothing_heavy(arguments: list[str], code: int) -> None:
    assert loaded(f"import sys; from shale_cli.__main__ import main; assert main({arguments!r}) == {code}") == []


def test_completion_loads_nothing_heavy() -> None:
    program = (
        "import os, sys; os.environ.update(_SHALE_COMPLETE='zsh', _SHALE_LINE='shale kv scan --p'); "
        "from shale_cli.__main__ import main; assert main([]) == 0"
    )
    assert loaded(program) == []


def test_a_command_ends_without_a_look_for_cycles() -> None:
    """A collection of cycles over all imported modules would take longer than most commands."""
    program = (
        "import atexit, gc, sys; from shale_cli.__main__ import main; "
        "atexit.register(lambda: print(gc.get_freeze_count() > 0)); main(['--version'])"
    )
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""}
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment).stdout
    assert said.splitlines()[-1] == b"True"


def test_a_command_loads_nothing_to_log_or_to_draw_with(tmp_path: Path) -> None:
    """A command that logs nothing imports neither structlog nor rich."""
    words = ["db", "info", "-u", f"file://{tmp_path}/db"]
    found = loaded(f"import sys; from shale_cli.__main__ import main; assert main({words!r}) == 3")
    assert not {"structlog", "rich", "numba", "obstore"} & set(found)


@pytest.mark.parametrize("verb", [["kv", "get", "key"], ["kv", "scan", "--limit", "3"], ["db", "info"], ["verify"]])
def test_a_command_without_settings_loads_no_pydantic(verb: list[str], tmp_path: Path) -> None:
    """Neither for its values, of which none needs a conversion, nor for settings."""
    run = f"""
import asyncio, sys, shale
from shale_cli.__main__ import main
async def fill():
    async with shale.Db.open('file://{tmp_path}/db') as db:
        await (await db.put(b'key', b'value')).durable()
asyncio.run(fill())
assert main({[*verb, "-u", f"file://{tmp_path}/db"]!r}) == 0
"""
    assert not {"pydantic", "structlog", "rich", "yaml", "obstore"} & set(loaded(f"exec({run!r})"))
