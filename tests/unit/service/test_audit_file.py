"""The file of the audit log."""

import stat
from pathlib import Path

import pytest

from shale.service.audit_file import AuditFile


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit"


@pytest.mark.parametrize("before", [0o644, 0o666, 0o600])
def test_a_file_that_exists_becomes_private(file: Path, before: int) -> None:
    file.write_text("line\n")
    file.chmod(before)
    AuditFile(file).close()
    assert (mode(file), file.read_text()) == (0o600, "line\n")


def test_a_new_file_is_private(file: Path) -> None:
    AuditFile(file).close()
    assert mode(file) == 0o600


def test_a_device_keeps_its_mode(file: Path) -> None:
    before = mode(Path("/dev/null"))
    file.symlink_to("/dev/null")
    AuditFile(file).close()
    assert mode(Path("/dev/null")) == before
