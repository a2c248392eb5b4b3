"""``shale encryption``: what needs which key, and the exit code of a rotation."""

from pathlib import Path

import pytest

from tests.integration.cli.goldens import Golden
from tests.integration.daemons.daemon_process import running

OLD, NEW = f"2026-10 {'3c' * 32}\n", f"2026-11 {'8f' * 32}\n"


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "keys"
    path.write_text(OLD)
    monkeypatch.setenv("SHALE_ENCRYPTION__KEY_FILE", str(path))
    return path


def test_the_keys_that_a_database_needs(golden: Golden, keys: Path, url: str) -> None:
    golden.check("encryption-status", "encryption", "status", "-u", url, volatile=("bytes",))
    keys.write_text(NEW + OLD)
    assert "start a compactor" in golden.refused("encryption", "rotate", "-u", url, code=2)


@pytest.mark.slow
def test_a_rotation_ends_with_4_while_a_checkpoint_keeps_old_ssts(
    golden: Golden, keys: Path, url: str, tmp_path: Path
) -> None:
    keys.write_text(NEW + OLD)
    with running("shale_compactor", "--url", url, log=tmp_path / "compactor.log") as compactor:
        compactor.wait_for("daemon.ready")
        golden.check(
            "encryption-rotate", "encryption", "rotate", "-q", "-u", url, code=4, volatile=("bytes", "checkpoints")
        )


def test_a_rotation_needs_the_keys(golden: Golden, url: str) -> None:
    assert "encryption.key_file" in golden.refused("encryption", "rotate", "-u", url, code=2)
