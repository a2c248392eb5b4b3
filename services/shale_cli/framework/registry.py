"""The module of each command: only the requested one is imported, and all of them for ``--help``."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

    from shale_cli.framework.session import GlobalOptions

NOUNS = {
    "db": "shale_cli.commands.db.app",
    "kv": "shale_cli.commands.kv.app",
    "manifest": "shale_cli.commands.manifest",
    "compaction": "shale_cli.commands.compaction.app",
    "compactions": "shale_cli.commands.compactions",
    "checkpoint": "shale_cli.commands.checkpoint",
    "clone": "shale_cli.commands.clone.app",
    "backup": "shale_cli.commands.backup.app",
    "encryption": "shale_cli.commands.encryption",
    "wal": "shale_cli.commands.wal",
    "sst": "shale_cli.commands.sst.app",
    "gc": "shale_cli.commands.gc.app",
    "seq": "shale_cli.commands.seq",
    "cas": "shale_cli.commands.cas",
    "config": "shale_cli.commands.config",
    "debug": "shale_cli.commands.debug.app",
    "writer": "shale_cli.commands.writer",
    "help": "shale_cli.commands.help_topics",
}
"""The module of each noun; its ``app`` has the verbs."""

COMMANDS = {
    "doctor": "shale_cli.commands.doctor:doctor",
    "healthcheck": "shale_cli.commands.healthcheck:healthcheck",
    "up": "shale_cli.commands.up.app:up",
    "ui": "shale_cli.commands.ui:ui",
    "plan": "shale_cli.commands.plan.app:plan",
    "completion": "shale_cli.commands.completion:completion",
    "verify": "shale_cli.commands.verify:verify",
}
"""Commands without a verb."""

EXAMPLES = {
    "doctor": "Examples:  shale doctor -u s3://bucket/db  |  shale doctor --store file:///data --fast",
    "healthcheck": "Example:  shale healthcheck --admin 127.0.0.1:9465 --endpoint livez",
    "up": "Examples:  shale up -u file:///tmp/db  |  shale up --set resp.enabled=true -u file:///tmp/db",
    "ui": "Examples:  shale ui -u s3://bucket/db  |  shale ui --port 9470 -u file:///data/orders",
    "plan": "Examples:  shale plan --rate 5MiB --live 1TiB --compression 3 --gets 2000  |  "
    "shale plan --rate 20KiB --live 10GiB --flush-interval 1s -o json",
    "completion": "Examples:  shale completion bash > ~/.local/share/bash-completion/completions/shale  |  "
    "shale completion zsh > ~/.zfunc/_shale  |  shale completion fish > ~/.config/fish/completions/shale.fish",
    "verify": "Examples:  shale verify -u s3://bucket/db  |  shale verify --deep -o json -u s3://bucket/db",
}
"""Examples of commands without a verb; commands with a verb define theirs where they are registered."""

ALIASES = {
    "submit-compaction": "shale_cli.commands.slatedb_aliases:submit_compaction",
    "read-compaction": "shale_cli.commands.slatedb_aliases:read_compaction",
    "read-compactions": "shale_cli.commands.slatedb_aliases:read_compactions",
    "list-compactions": "shale_cli.commands.slatedb_aliases:list_compactions",
    "run-garbage-collection": "shale_cli.commands.gc.app:run_garbage_collection",
    "read-manifest": "shale_cli.commands.slatedb_aliases:read_manifest",
    "list-manifests": "shale_cli.commands.slatedb_aliases:list_manifests",
    "create-checkpoint": "shale_cli.commands.checkpoint:create",
    "refresh-checkpoint": "shale_cli.commands.checkpoint:refresh_with_flags",
    "delete-checkpoint": "shale_cli.commands.checkpoint:delete_with_flags",
    "list-checkpoints": "shale_cli.commands.checkpoint:list_",
    "seq-to-ts": "shale_cli.commands.seq:to_time",
    "ts-to-seq": "shale_cli.commands.seq:from_time",
    "scan": "shale_cli.commands.slatedb_aliases:scan",
    "create-clone": "shale_cli.commands.clone.app:create",
    "delete-db": "shale_cli.commands.db.destroy:delete_db",
    "destroy": "shale_cli.commands.db.destroy:destroy_with_flags",
}
"""Flat command names of SlateDB's tool (docs/reference/protocol.md 13.2): hidden, without confirmation, always JSON.

A function with the same flags is used directly; the others are in ``shale_cli.commands.slatedb_aliases``.
"""


def register(app: "typer.Typer", wanted: str | None) -> None:
    """Add the command ``wanted`` to ``app``, or all commands if the name is unknown, for the help page."""
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
    """Return the command with the same flags; it prints JSON regardless of the terminal and ``--output``."""

    @wraps(command)
    def in_json(context: "typer.Context", **flags: object) -> None:
        from shale_cli.framework.output.writer import Format

        options: GlobalOptions = context.obj
        context.obj = replace(options, output=replace(options.output, format=Format.JSON))
        command(context, **flags)

    return in_json


def _found(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
