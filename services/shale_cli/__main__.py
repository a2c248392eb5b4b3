"""``shale``: one command for processes and for questions about a database.

A process command hands the rest of the command line to its daemon, which reads its own settings.  Everything else is
a typer application, loaded only then; global options may stand anywhere before ``--``.
"""

import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

PROCESSES = {
    "writer": "shale_writer",
    "compactor": "shale_compactor",
    "worker": "shale_compactor.worker",
    "gc": "shale_gc",
    "reader": "shale_reader",
}
"""Commands that are daemons, and the package of each: found by name when asked for, never imported by this one."""

GLOBAL_VALUES = {
    "--url", "-u", "--store", "--path", "-p", "--config", "--output", "-o", "--key-format", "--timeout",
}  # fmt: skip
GLOBAL_FLAGS = {"--verbose", "-v", "--quiet", "-q"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (docs/operations.md 12)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in PROCESSES:
        run_process(given[0], given[1:])
    if given and given[0] == "demo":
        from shale_cli.demo.__main__ import main as demo

        return demo(given[1:])
    from shale_cli.app import run

    ordered = global_options_first(given)
    return run(ordered, noun=noun(ordered))


def run_process(name: str, arguments: Sequence[str]) -> NoReturn:
    """Become the daemon ``name``."""
    from shale.service.leaving import leave

    module = importlib.import_module(f"{PROCESSES[name]}.__main__")
    leave(module.main(arguments))


def global_options_first(arguments: Sequence[str]) -> list[str]:
    """Move global options to the front, where typer wants them: ``shale kv get k -u URL`` is how people write."""
    front: list[str] = []
    rest: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            rest += [argument, *left]
            break
        name, equals, _ = argument.partition("=")
        if name in GLOBAL_FLAGS or (equals and name.startswith("--") and name in GLOBAL_VALUES):
            front.append(argument)
        elif argument in GLOBAL_VALUES and left:
            front += [argument, left.pop(0)]
        else:
            rest.append(argument)
    return front + rest


def noun(arguments: Sequence[str]) -> str | None:
    """The first argument that is no global option; ``None`` where somebody asks for help or says nothing."""
    left = iter(arguments)
    for argument in left:
        if argument in GLOBAL_VALUES:
            next(left, None)
        elif not argument.startswith("-"):
            return argument
    return None


if __name__ == "__main__":
    sys.exit(main())
