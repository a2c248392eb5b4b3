"""The file of a debug bundle is private and new, whatever is in its folder."""

import stat
import tarfile
from pathlib import Path

import pytest

from shale.errors import InvalidRequestError
from shale_cli.commands.debug.bundle.archive import Archive


def write(path: Path) -> None:
    with Archive(path, "bundle", 0) as archive:
        archive.add("file", b"data")


def test_a_part_that_exists_is_replaced(tmp_path: Path) -> None:
    path, part = tmp_path / "b.tar.gz", tmp_path / "b.tar.gz.part"
    part.write_bytes(b"of another run")
    part.chmod(0o666)
    with part.open("rb") as opened_before:
        write(path)
        assert opened_before.read() == b"of another run"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not part.exists()
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["bundle/file"]


def test_a_link_at_the_part_is_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "b.tar.gz"
    victim.write_text("precious")
    (tmp_path / "b.tar.gz.part").symlink_to(victim)
    write(path)
    assert victim.read_text() == "precious"
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"b\.tar\.gz\.part: No such file"):
        write(tmp_path / "none" / "b.tar.gz")


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Archive(tmp_path / "b.tar.gz", "bundle", 0):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
