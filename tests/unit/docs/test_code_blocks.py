"""Every code block of a page: Python runs, commands parse, settings and requests are read.

``tests.code_blocks`` describes the comments of blocks that are not run.  ``tests/integration/docs`` executes commands.
"""

import ast
import asyncio
import json
import re
import shlex
import tomllib
from inspect import CO_COROUTINE
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from shale.service.config.config_sources import all_settings
from shale_cli.framework.app import make_app
from shale_cli.framework.daemons import DAEMONS
from shale_cli.framework.global_options import split
from shale_cli.framework.settings import CommandSettings
from shale_compactor.settings import CompactorSettings
from shale_gc.settings import GcSettings
from shale_reader.settings import ReaderSettings
from shale_writer.settings import WriterSettings
from tests.code_blocks import PAGES, Block, blocks, commands
from tests.paths import REPOSITORY

PLAIN = {"text", "promql"}
LANGUAGES = {"python", "sh", "toml", "yaml", "json"} | PLAIN
OTHER_PROGRAMS = {
    *("cat", "curl", "for", "rm", "export", "redis-cli", "sha256sum", "SHALE_KERNELS=off", ".venv/bin/pytest"),
    *("kubectl", "helm", "chronyc"),  # tests/unit/docs/test_runbooks.py reads the first two
}
IN_A_POD = {"shale", "python"}
"""The programs of the image."""
DAEMON_OPTIONS = {
    *("--url", "-u", "--store", "--path", "--wal-store", "--config", "--set"),
    *("--once", "--standby", "--take-over", "--no-embedded-worker"),
}
COMMANDS_OF_DAEMONS = {("gc", "run"), ("gc", "plan"), ("writer", "promote")}
"""Commands whose noun is the name of a daemon."""
SETTINGS = (WriterSettings, CompactorSettings, GcSettings, ReaderSettings, CommandSettings)


ALL = [block for page in PAGES for block in blocks(page)]
RUN = [block for block in ALL if block.not_run is None]


def of(*languages: str) -> list[Any]:
    return [pytest.param(block, id=str(block)) for block in RUN if block.language in languages]


def test_every_block_has_a_language_and_every_exception_a_reason() -> None:
    assert len(ALL) > 60
    assert [str(block) for block in ALL if block.language not in LANGUAGES] == []
    reasons = [(str(block), why) for block in ALL for why in (block.not_run, block.parsed_only) if why is not None]
    assert [place for place, why in reasons if len(why.split()) < 2] == []


PYTHON_PAGES = sorted({block.page for block in RUN if block.language == "python"})


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: page.name)
def test_programs_run(page: Path, tmp_path: Path) -> None:
    """Blocks of one page run in order and share their names, as for a reader who types them in."""
    (tmp_path / "shale").mkdir()
    names: dict[str, Any] = {"__name__": "__page__"}
    for block in blocks(page):
        if block.language != "python" or block.not_run is not None:
            continue
        text = block.text.replace("/tmp/shale", str(tmp_path / "shale"))
        code = compile(text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & CO_COROUTINE:
            asyncio.run(eval(code, names))
        else:
            exec(code, names)


@pytest.fixture(scope="module")
def root_command() -> Any:
    return get_command(make_app(None))


def check_shale(arguments: list[str], root: Any) -> None:
    """Parse a command line of ``shale``; raises what its parser raises."""
    arguments = [each for each in arguments if each not in {"--help", "-h"}]
    if arguments and arguments[0] in DAEMONS and tuple(arguments[:2]) not in COMMANDS_OF_DAEMONS:
        known = {".".join(names) for model in SETTINGS for names in all_settings(model)}
        for place, each in enumerate(arguments[1:], start=1):
            if each.startswith("-"):
                assert each in DAEMON_OPTIONS, each
            if arguments[place - 1] == "--set":
                assert each.partition("=")[0] in known, each
        return
    if arguments and arguments[0] in {"demo", "spark", "help", "--version", "run-garbage-collection"}:
        return
    rest = list(split(arguments).rest)
    command, name = root, "shale"
    while hasattr(command, "commands"):
        if not rest:
            return
        name = rest.pop(0)
        assert name in command.commands, f"{name} is no command"
        command = command.commands[name]
    if rest or arguments[-1] == name:
        command.make_context(name, rest, resilient_parsing=not rest)


@pytest.mark.parametrize("block", of("sh"))
def test_commands_parse(block: Block, root_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "admin.token").touch()  # options that name this file want it to exist
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for line in commands(block.text):
        command = next((part for part in line.split(" > ")[0].split(" | ") if part.startswith("shale ")), line)
        words = shlex.split(re.sub(r"^[A-Z]+=\$\((.*)\)$", r"\1", command), comments=True)
        if words[:1] == ["kubectl"] and "--" in words:
            words = words[words.index("--") + 1 :]
            words = words[: words.index(">")] if ">" in words else words
            assert words[0] in IN_A_POD, line
            if words[0] == "python":
                continue
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]) and words[0] not in OTHER_PROGRAMS:
            words.pop(0)
        if not words:
            continue
        program, arguments = words[0], words[1:]
        if program == "shale":
            check_shale(arguments, root_command)
        elif program == "make":
            assert {each for each in arguments if "=" not in each} <= targets, line
        else:
            assert program in OTHER_PROGRAMS, line


@pytest.mark.parametrize("block", of("toml", "yaml", "json"))
def test_files_are_read(block: Block) -> None:
    read = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}[block.language]
    assert read(block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_line_is_longer_than_100(page: Path) -> None:
    long = [number for number, line in enumerate(page.read_text().splitlines(), start=1) if len(line) > 100]
    assert long == []
