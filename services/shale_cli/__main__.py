"""``shale``: one command for processes and for questions about a database.

A process command hands the rest of the command line to its daemon, which reads its own settings.  Everything else is
a typer application, loaded only then; global options may stand anywhere before ``--``.  A plain ``healthcheck``, which
every container runs every few seconds, does without that application: it would cost more than an idle daemon.
"""

import importlib
import os
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

VERBS = {"gc": ("run", "plan")}
"""Processes that are nouns as well; without one of these verbs they are the daemon."""

GLOBAL_VALUES = {
    "--url", "-u", "--store", "--path", "-p", "--wal-store", "--config", "--output", "-o", "--key-format", "--timeout",
    "--columns", "--color", "--env-file",
}  # fmt: skip
GLOBAL_FLAGS = {"--verbose", "-v", "--quiet", "-q", "--no-headers"}
VALUES_BEFORE_THE_NOUN = GLOBAL_VALUES | {"-e"}
"""Behind SlateDB's flat names ``-e`` is the end of a range, so that ``--env-file`` is short only before the noun."""

PROCESS_ALIASES = {"run-writer": "writer", "run-compactor": "compactor", "run-worker": "worker"}
"""SlateDB's names of processes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (docs/operations.md 12)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["healthcheck"]:
        from shale_cli.probe import probe

        return probe()
    from shale.errors import InvalidRequestError

    try:
        given = with_environment(given)
    except InvalidRequestError as error:
        sys.stderr.write(f"shale: {error}\n")
        return 2
    at = noun_at(given)
    wanted = None if at is None else given[at]
    if at is not None and wanted == "schedule-garbage-collection":
        from shale_cli.gc_schedule import daemon_arguments

        try:
            run_process("gc", daemon_arguments([*given[:at], *given[at + 1 :]]))
        except InvalidRequestError as error:
            sys.stderr.write(f"shale: {error}\n")
            return 2
    if at is not None and (wanted in PROCESSES or wanted in PROCESS_ALIASES) and not _has_verb(given, at):
        name = given.pop(at)
        run_process(PROCESS_ALIASES.get(name, name), given)
    if given and given[0] == "demo":
        from shale_cli.demo.__main__ import main as demo

        return demo(given[1:])
    if "_SHALE_COMPLETE" in os.environ:
        from shale_cli.completion import words

        typed = words()
        at = noun_at(typed)
        wanted = None if at is None else typed[at]
    if given == ["--version"]:
        from shale.service.build import version

        sys.stdout.write(f"shale {version()}\n")
        return 0
    from shale_cli.app import run

    ordered = global_options_first(given)
    return run(ordered, noun=wanted, noun_at=noun_at(ordered))


def _has_verb(arguments: Sequence[str], at: int) -> bool:
    """Whether the name of a process stands for a noun here: ``shale gc run``."""
    verb = noun_at(arguments[at + 1 :])
    return verb is not None and arguments[at + 1 + verb] in VERBS.get(arguments[at], ())


def run_process(name: str, arguments: Sequence[str]) -> NoReturn:
    """Become the daemon ``name``."""
    from shale.service.leaving import leave

    module = importlib.import_module(f"{PROCESSES[name]}.__main__")
    leave(module.main(arguments))


def with_environment(arguments: list[str]) -> list[str]:
    """Put what ``--env-file`` and ``CLOUD_PROVIDER`` say into the environment, for daemons too.

    Raises:
        InvalidRequestError: a file cannot be read, or a variable is missing.
    """
    if "CLOUD_PROVIDER" not in os.environ and not any(each.startswith(("-e", "--env-file")) for each in arguments):
        return arguments
    from shale_cli import environment

    return environment.with_environment(arguments, noun_at(arguments))


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


def noun_at(arguments: Sequence[str]) -> int | None:
    """Where the first argument is that is no global option; ``None`` where somebody asks for help or says nothing."""
    at = 0
    while at < len(arguments):
        if arguments[at] in VALUES_BEFORE_THE_NOUN:
            at += 2
        elif arguments[at].startswith("-"):
            at += 1
        else:
            return at
    return None


if __name__ == "__main__":
    sys.exit(main())
