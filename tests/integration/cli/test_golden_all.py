"""There is a golden file for each command."""

from shale_cli.framework.help.command_tree import command_tree
from tests.integration.cli.goldens import FOLDER

SAME = {
    "db-verify": "verify",
    "create-checkpoint": "checkpoint-create",
    "refresh-checkpoint": "checkpoint-refresh",
    "delete-checkpoint": "checkpoint-delete",
    "list-checkpoints": "checkpoint-list",
    "create-clone": "clone-create",
    "destroy": "db-destroy",
    "seq-to-ts": "seq-to-time",
    "ts-to-seq": "seq-from-time",
}
"""Other names of one function, and whose file tells what it prints."""

WITHOUT = {
    "compaction-simulate": "prints the numbers of a simulation: tests/unit/cli/commands/test_compaction_simulate.py",
    "completion": "prints a script",
    "config-check": "prints a hash of all settings",
    "config-hash-token": "prints the hash of what it reads: tests/unit/cli/commands/test_token.py",
    "config-new-token": "prints a random token: tests/unit/cli/commands/test_token.py",
    "config-reference": "prints Markdown",
    "config-schema": "prints a JSON Schema, which changes with every setting",
    "config-show": "prints all settings: docs/reference/settings.md",
    "healthcheck": "prints nothing",
    "help-man": "prints a manual",
    "ui": "runs until it is stopped",
    "up": "runs until it is stopped",
}


def test_every_command_has_a_golden_file() -> None:
    names = {each.name.removeprefix("shale ").replace(" ", "-") for each in command_tree() if not each.is_noun}
    have = {file.stem.partition(".")[0] for file in FOLDER.glob("*.json")}
    missing = names - have - set(WITHOUT) - {name for name, same in SAME.items() if same in have}
    assert missing == set(), "commands without a golden file"
    assert have <= names, "golden files without a command"
    assert {*SAME, *WITHOUT} <= names, "exceptions without a command"
