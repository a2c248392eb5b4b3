"""YAML whose nesting is bounded."""

from pathlib import Path

import pytest
import yaml

from shale.compat.slatedb.settings.settings import Invalid, Settings
from shale.core.bounded_yaml import NESTING_MAX, read_yaml
from shale.errors import InvalidRequestError
from shale.service.config.config_sources import read_files
from shale_gc.settings import GcSettings


def nested(depth: int) -> str:
    return "[" * depth + "1" + "]" * depth


def test_lists_and_tables_in_brackets_are_nested_up_to_a_limit() -> None:
    value: object = 1
    for _ in range(NESTING_MAX):
        value = [value]
    assert read_yaml(f"a: {nested(NESTING_MAX)}\nb: {{c: [1, 2]}}") == {"a": value, "b": {"c": [1, 2]}}
    assert read_yaml("") is None
    for text in (nested(NESTING_MAX + 1), "{a: " * (NESTING_MAX + 1)):
        with pytest.raises(yaml.MarkedYAMLError, match="nested too deeply") as caught:
            read_yaml(f"a:\n  {text}")
        assert caught.value.problem_mark is not None
        assert caught.value.problem_mark.line == 1


def test_only_the_first_brackets_of_a_document_are_read() -> None:
    """Without the limit, a million of them would take hours."""
    with pytest.raises(yaml.YAMLError, match="nested too deeply"):
        read_yaml("[" * 1_000_000)


def test_settings_files_name_the_place(tmp_path: Path) -> None:
    file = tmp_path / "shale.yaml"
    file.write_text(f"store:\n  endpoint: {nested(100)}\n")
    with pytest.raises(InvalidRequestError, match=r"shale.yaml: invalid YAML at line 2, column 45: nested too deeply"):
        read_files("gc", GcSettings, [file])
    with pytest.raises(Invalid, match="nested too deeply"):
        Settings.from_file(str(file))
    file = file.with_suffix(".json")
    file.write_text(f'{{"a": {nested(100_000)}}}')
    with pytest.raises(Invalid, match="invalid configuration format"):
        Settings.from_file(str(file))
