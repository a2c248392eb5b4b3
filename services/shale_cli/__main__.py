"""``shale``: one command for processes and for questions about a database.

A process command hands the rest of the command line to its daemon, which reads its own settings.  Everything else is
a typer application, loaded only then; global options may stand anywhere before ``--``.  A plain ``healthcheck``, which
every container runs every few seconds, does without that application: it would cost more than an idle daemon.
"""

import atexit
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

TOPICS = ("exit-codes", "options", "man")
"""What ``shale help`` tells that no command's ``--help`` does."""

COMPLETE = "_SHALE_COMPLETE"
"""Set by the scripts of ``shale completion``: ``shale`` then prints words instead of doing anything."""

PROCESS_ALIASES = {"run-writer": "writer", "run-compactor": "compactor", "run-worker": "worker"}
"""SlateDB's names of processes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (docs/operations.md 12)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["healthcheck"]:
        from shale_cli.probe import probe

        return probe()
    from shale.errors import InvalidRequestError
    from shale.service.leaving import end_soon

    atexit.register(end_soon)
    try:
        given = with_environment(given)
    except InvalidRequestError as error:
        sys.stderr.write(f"shale: {error}\n")
        return 2
    given = help_last(given)
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
    if COMPLETE in os.environ:
        from shale_cli.completion import answer

        return answer()
    if "--version" in given[:at]:
        from shale.service.build import version

        sys.stdout.write(f"shale {version()}\n")
        return 0
    from shale_cli.app import run

    return run(given)


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


def help_last(arguments: list[str]) -> list[str]:
    """``shale help kv scan`` is ``shale kv scan --help``, unless there is such a topic."""
    at = noun_at(arguments)
    if at is None or arguments[at] != "help":
        return arguments
    rest = arguments[at + 1 :]
    is_topic = not rest or rest[0].startswith("-") or rest[0] in TOPICS
    return arguments if is_topic else [*arguments[:at], *rest, "--help"]


def noun_at(arguments: Sequence[str]) -> int | None:
    """Where the first argument is that is no global option; ``None`` where somebody asks for help or says nothing."""
    from shale_cli.global_options import option_of

    at = 0
    while at < len(arguments):
        option = option_of(arguments[at], before_the_noun=True)
        if option is not None and option.metavar is not None:
            at += 2
        elif arguments[at].startswith("-"):
            at += 1
        else:
            return at
    return None


if __name__ == "__main__":
    sys.exit(main())
