"""Manifests, compactions files and boundaries of SlateDB 0.17.0, decoded and encoded byte for byte."""

from pathlib import Path

import pytest

from shale.format.boundary import decode_boundary, encode_boundary
from shale.format.compactions import decode_compactions, encode_compactions
from shale.format.manifest import decode_manifest, encode_manifest
from tests.golden_files import golden, label


@pytest.mark.parametrize("path", golden("*.manifest"), ids=label)
def test_a_manifest_is_written_again_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    assert encode_manifest(decode_manifest(data, path=str(path))) == data


@pytest.mark.parametrize("path", golden("*.compactions"), ids=label)
def test_a_compactions_file_is_written_again_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    assert encode_compactions(decode_compactions(data, path=str(path))) == data


@pytest.mark.parametrize("path", golden("*.boundary"), ids=label)
def test_a_boundary_is_written_again_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    assert encode_boundary(decode_boundary(data)) == data
