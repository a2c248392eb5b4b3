"""The code generated from ``schemas/`` is current, and manifests and compactions files go through it."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from shale._generated import layouts, schema
from shale.format.compactions import decode_compactions, encode_compactions
from shale.format.manifest import decode_manifest, encode_manifest
from shale.types import Compactions, Epoch, Manifest
from tests.external_tools import require_tool
from tests.paths import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", REPOSITORY / "schemas/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_layouts_are_those_of_the_schemas() -> None:
    assert len(layouts.TABLES) > 20
    assert generator().layouts_code() == Path(layouts.__file__).read_text()


def test_every_table_has_a_generated_class_and_builder_with_its_fields() -> None:
    for table, fields in layouts.TABLES.items():
        assert hasattr(schema, table)
        for name, _, _ in fields:
            camel = "".join(part.capitalize() for part in name.split("_"))
            assert hasattr(getattr(schema, table), camel), f"{table}.{camel}"
            assert hasattr(schema, f"{table}Add{camel}"), f"{table}Add{camel}"


def test_the_generated_code_is_what_flatc_writes() -> None:
    assert generator().generated_code(require_tool("flatc")) == Path(schema.__file__).read_text()


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Count the calls of a generated function or method."""
    owner: Any = schema
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    original: Callable[..., Any] = getattr(owner, last)
    calls: list[str] = []

    def count(*args: Any) -> Any:
        calls.append(name)
        return original(*args)

    monkeypatch.setattr(owner, last, count)
    return calls


def test_manifests_are_written_and_read_through_the_generated_code(monkeypatch: pytest.MonkeyPatch) -> None:
    written = counted(monkeypatch, "ManifestV2AddWriterEpoch")
    read = counted(monkeypatch, "ManifestV2.WriterEpoch")
    manifest = Manifest(writer_epoch=Epoch(7))
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert (len(written), len(read)) == (1, 1)


def test_compactions_are_written_and_read_through_the_generated_code(monkeypatch: pytest.MonkeyPatch) -> None:
    written = counted(monkeypatch, "CompactionsV1AddCompactorEpoch")
    read = counted(monkeypatch, "CompactionsV1.CompactorEpoch")
    compactions = Compactions(compactor_epoch=Epoch(7))
    assert decode_compactions(encode_compactions(compactions)) == compactions
    assert (len(written), len(read)) == (1, 1)
