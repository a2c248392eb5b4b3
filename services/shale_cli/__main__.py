"""``shale``: the command line of daemons and of database administration.

A daemon command passes the rest of the command line to its daemon, which reads its own settings.  All other commands
belong to a typer application, which is imported only for them; global options may be anywhere before ``--``.  A plain
``healthcheck``, which every container runs every few seconds, does not import that application: the import would cost
more than an idle daemon.
"""

import atexit
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from shale_cli.framework.daemons import DAEMON_ALIASES, DAEMONS, VERBS

if TYPE_CHECKING:
    from types import TracebackType

TOPICS = ("exit-codes", "options", "man")
"""The topics of ``shale help``."""

COMPLETE = "_SHALE_COMPLETE"
"""The variable that completion scripts set: ``shale`` then prints completions and does nothing else."""

GC_THRESHOLD = 20_000
"""New containers between two collections; Python's default is 700."""


def print_unexpected(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
    """Print the traceback of an error that no command expects, without the passwords of its URLs."""
    import traceback

    from shale.core.url_secrets import without_url_secrets

    sys.stderr.write(without_url_secrets("".join(traceback.format_exception(kind, error, trace))))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (docs/reference/exit-codes.md)."""
    sys.excepthook = print_unexpected
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["healthcheck"]:
        from shale_cli.framework.probe import probe

        return probe()
    # Imports create tens of thousands of objects, none of them garbage.
    gc.set_threshold(GC_THRESHOLD)
    # numpy's BLAS, which nothing here calls, would start a thread per CPU.  The daemons of ``shale up`` inherit this.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from shale.errors import InvalidRequestError
    from shale.service.exit_process import freeze_gc

    atexit.register(freeze_gc)
    try:
        given = with_environment(given)
    except InvalidRequestError as error:
        sys.stderr.write(f"shale: {error}\n")
        return 2
    given = rewrite_help(given)
    at = noun_index(given)
    wanted = None if at is None else given[at]
    if at is not None and wanted == "schedule-garbage-collection":
        from shale_cli.commands.gc.schedule import daemon_arguments

        try:
            run_process("gc", daemon_arguments([*given[:at], *given[at + 1 :]]))
        except InvalidRequestError as error:
            sys.stderr.write(f"shale: {error}\n")
            return 2
    if at is not None and (wanted in DAEMONS or wanted in DAEMON_ALIASES) and not _has_verb(given, at):
        name = given.pop(at)
        run_process(DAEMON_ALIASES.get(name, name), given)
    if given and given[0] == "demo":
        from shale_cli.demo.__main__ import main as demo

        return demo(given[1:])
    if COMPLETE in os.environ:
        from shale_cli.commands.completion import print_completions

        return print_completions()
    if "--version" in given[:at]:
        from shale.service.build import version

        sys.stdout.write(f"shale {version()}\n")
        return 0
    from shale_cli.framework.app import run

    return run(given)


def _has_verb(arguments: Sequence[str], at: int) -> bool:
    """Return whether the name of a daemon is used as a noun: ``shale gc run``."""
    verb = noun_index(arguments[at + 1 :])
    return verb is not None and arguments[at + 1 + verb] in VERBS.get(arguments[at], ())


def run_process(name: str, arguments: Sequence[str]) -> NoReturn:
    """Run the daemon ``name`` in this process."""
    from shale.service.exit_process import exit_process

    module = importlib.import_module(f"{DAEMONS[name]}.__main__")
    exit_process(module.main(arguments))


def with_environment(arguments: list[str]) -> list[str]:
    """Set the variables of ``--env-file`` and ``CLOUD_PROVIDER``, also for daemons.

    Raises:
        InvalidRequestError: a file cannot be read, or a variable is missing.
    """
    if "CLOUD_PROVIDER" not in os.environ and not any(each.startswith(("-e", "--env-file")) for each in arguments):
        return arguments
    from shale_cli.framework import environment

    return environment.with_environment(arguments, noun_index(arguments))


def rewrite_help(arguments: list[str]) -> list[str]:
    """Rewrite ``shale help kv scan`` to ``shale kv scan --help``, unless it names a topic."""
    at = noun_index(arguments)
    if at is None or arguments[at] != "help":
        return arguments
    rest = arguments[at + 1 :]
    is_topic = not rest or rest[0].startswith("-") or rest[0] in TOPICS
    return arguments if is_topic else [*arguments[:at], *rest, "--help"]


def noun_index(arguments: Sequence[str]) -> int | None:
    """Return the index of the first argument that is not a global option; ``None`` if there is none."""
    from shale_cli.framework.global_options import option_of

    at = 0
    while at < len(arguments):
        option = option_of(arguments[at], before_noun=True)
        if option is not None and option.metavar is not None:
            at += 2
        elif arguments[at].startswith("-"):
            at += 1
        else:
            return at
    return None


def script() -> NoReturn:
    """Run the command of this process.

    A request that is not answered must not keep it alive: its thread ends only with the request's time limit.
    """
    from shale.service.exit_process import exit_process

    exit_process(main())


if __name__ == "__main__":
    script()
