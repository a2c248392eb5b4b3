"""Reads that never wait for a disk, and how many files they keep open."""

import os
from pathlib import Path

import pytest

from shale.core import open_file as module
from shale.core.open_file import LocalFiles, nowait_flags, open_files


@pytest.fixture
def data_file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(bytes(range(200)))
    return path


@pytest.fixture(autouse=True)
def _forget_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "known_flags", {})


def test_a_read_returns_what_the_page_cache_holds(data_file: Path) -> None:
    file = LocalFiles().open(str(data_file))
    if file is None:
        pytest.skip("this file system has no reads that do not wait")
    buffer = bytearray(10)
    assert file.read_into(memoryview(buffer), 5) == 10
    assert buffer == bytes(range(5, 15))
    assert file.read_into(memoryview(buffer), 195) == 5
    assert file.read_into(memoryview(buffer), 500) == 0


def test_a_file_that_is_missing_is_no_error(tmp_path: Path) -> None:
    assert LocalFiles().open(str(tmp_path / "none")) is None


def test_a_dropped_file_is_closed(data_file: Path) -> None:
    before = open_files()
    files = [LocalFiles().open(str(data_file)) for _ in range(20)]
    assert open_files() == before + len([file for file in files if file is not None])
    del files
    assert open_files() == before


def test_a_file_in_memory_needs_no_flag(data_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = data_file.stat().st_dev
    mounts = data_file.parent / "mountinfo"
    mounts.write_text(
        "22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw\n"
        f"30 25 {os.major(device)}:{os.minor(device)} / /dev/shm rw - tmpfs tmpfs rw,size=24684092k\n"
    )
    monkeypatch.setattr(module, "MOUNTS", mounts)
    with data_file.open("rb") as opened:
        assert nowait_flags(opened.fileno()) == 0


@pytest.mark.parametrize("flag", [None, 1 << 20], ids=["no such flag", "refused"])
def test_a_file_system_on_which_reads_may_wait_has_no_such_reads(
    data_file: Path, monkeypatch: pytest.MonkeyPatch, flag: int | None
) -> None:
    monkeypatch.setattr(module, "NOWAIT", flag)
    monkeypatch.setattr(module, "MOUNTS", data_file.parent / "none")
    assert LocalFiles().open(str(data_file)) is None


def test_a_file_system_on_which_reads_may_wait_is_asked_once(data_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file says nothing of the file system."""
    monkeypatch.setattr(module, "nowait_flags", lambda _: None)
    files, opened = LocalFiles(), []
    system_open = os.open

    def counted(path: str, flags: int) -> int:
        opened.append(path)
        return system_open(path, flags)

    monkeypatch.setattr(module.os, "open", counted)
    assert files.open(str(data_file.parent / "none")) is None
    assert files.open(str(data_file)) is None
    assert files.open(str(data_file)) is None
    assert len(opened) == 2
