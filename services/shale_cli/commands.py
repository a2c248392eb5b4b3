"""Which module holds which command: only the one that is asked for is imported, all of them for ``--help``."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

    from shale_cli.session import GlobalOptions

NOUNS = {
    "db": "shale_cli.db",
    "kv": "shale_cli.kv",
    "manifest": "shale_cli.manifest",
    "compaction": "shale_cli.compaction",
    "compactions": "shale_cli.compactions",
    "checkpoint": "shale_cli.checkpoint",
    "clone": "shale_cli.clone",
    "wal": "shale_cli.wal",
    "sst": "shale_cli.sst",
    "gc": "shale_cli.gc",
    "seq": "shale_cli.seq",
    "config": "shale_cli.config",
    "debug": "shale_cli.debug",
    "help": "shale_cli.helping",
}
"""A noun and the module whose ``app`` has its verbs."""

COMMANDS = {
    "doctor": "shale_cli.doctor:doctor",
    "healthcheck": "shale_cli.healthcheck:healthcheck",
    "up": "shale_cli.up:up",
    "plan": "shale_cli.plan:plan",
    "completion": "shale_cli.completion:completion",
    "verify": "shale_cli.verify:verify",
}
"""Commands without a verb."""

EXAMPLES = {
    "doctor": "Examples:  shale doctor -u s3://bucket/db  |  shale doctor --store file:///data --fast",
    "healthcheck": "Example:  shale healthcheck --admin 127.0.0.1:9465 --endpoint livez",
    "up": "Example:  shale up -u file:///tmp/db",
    "plan": "Examples:  shale plan --rate 5MiB --live 1TiB --compression 3 --gets 2000  |  "
    "shale plan --rate 20KiB --live 10GiB --flush-interval 1s -o json",
    "completion": "Examples:  shale completion bash > ~/.local/share/bash-completion/completions/shale  |  "
    "shale completion zsh > ~/.zfunc/_shale  |  shale completion fish > ~/.config/fish/completions/shale.fish",
    "verify": "Examples:  shale verify -u s3://bucket/db  |  shale verify --deep -o json -u s3://bucket/db",
}
"""How commands without a verb are used; those with one say so where they are."""

ALIASES = {
    "submit-compaction": "shale_cli.aliases:submit_compaction",
    "read-compaction": "shale_cli.aliases:read_compaction",
    "read-compactions": "shale_cli.aliases:read_compactions",
    "list-compactions": "shale_cli.aliases:list_compactions",
    "run-garbage-collection": "shale_cli.gc:run_garbage_collection",
    "read-manifest": "shale_cli.aliases:read_manifest",
    "list-manifests": "shale_cli.aliases:list_manifests",
    "create-checkpoint": "shale_cli.checkpoint:create",
    "refresh-checkpoint": "shale_cli.checkpoint:refresh_by_flag",
    "delete-checkpoint": "shale_cli.checkpoint:delete_by_flag",
    "list-checkpoints": "shale_cli.checkpoint:list_",
    "seq-to-ts": "shale_cli.seq:to_time",
    "ts-to-seq": "shale_cli.seq:from_time",
    "scan": "shale_cli.aliases:scan",
    "create-clone": "shale_cli.clone:create",
    "delete-db": "shale_cli.db_destroy:delete_db",
    "destroy": "shale_cli.db_destroy:destroy_by_flags",
}
"""Flat names of SlateDB's and of the design documents (docs/protocol.md 13.2): hidden, at once, always JSON.

A function that has the right flags already is named as it is; the others are in ``shale_cli.aliases``.
"""


def register(app: "typer.Typer", wanted: str | None) -> None:
    """Add the command that is ``wanted`` to ``app``; all of them if it is none of ours, so that help can tell them."""
    known = wanted in NOUNS or wanted in COMMANDS or wanted in ALIASES
    for name, module in NOUNS.items():
        if not known or name == wanted:
            app.add_typer(_found(f"{module}:app"), name=name)
    for name, place in COMMANDS.items():
        if not known or name == wanted:
            app.command(name, epilog=EXAMPLES.get(name))(_found(place))
    for name, place in ALIASES.items():
        if not known or name == wanted:
            app.command(name, hidden=True)(_in_json(_found(place)))


def _in_json(command: Callable[..., None]) -> Callable[..., None]:
    """The command under the same flags; it prints JSON whatever stdout is and whatever ``--output`` says."""

    @wraps(command)
    def in_json(context: "typer.Context", **flags: object) -> None:
        from shale_cli.output import Format

        options: GlobalOptions = context.obj
        context.obj = replace(options, output=replace(options.output, format=Format.JSON))
        command(context, **flags)

    return in_json


def _found(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
