"""The parts of a release: notes, checksums and their signature."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from deploy.release.changelog import ReleaseError, notes
from deploy.release.checksums import NAMESPACE, sign, write_checksums
from tests.paths import REPOSITORY

CHANGELOG = "# Changelog\n\n## 1.1 (2026-02-01)\n\n- new\n\n## 1.0 (2026-01-01)\n\n- old\n"


def test_the_notes_are_the_section_of_the_version() -> None:
    assert (notes(CHANGELOG, "1.1"), notes(CHANGELOG, "1.0")) == ("- new", "- old")


@pytest.mark.parametrize(
    ("changelog", "told"),
    [
        (CHANGELOG, "no section for version 2.0"),
        ("## 2.0\n\n- a change\n", "must end with its date"),
        ("## 2.0 (soon)\n\n- a change\n", "must end with its date"),
        ("## 2.0 (2026-03-01)\n\n## 1.0 (2026-01-01)\n\n- old\n", "is empty"),
    ],
)
def test_a_version_without_notes_is_not_released(changelog: str, told: str) -> None:
    with pytest.raises(ReleaseError, match=told):
        notes(changelog, "2.0")


def test_the_present_version_has_notes() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert notes((REPOSITORY / "CHANGELOG.md").read_text(), version)


def release(folder: Path) -> Path:
    package = folder / "shale.whl"
    package.write_bytes(b"a wheel")
    return write_checksums(folder, [package])


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    checksums = release(tmp_path)
    command = ["sha256sum", "--check", "--strict", checksums.name]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    (tmp_path / "shale.whl").write_bytes(b"another wheel")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 1


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def is_signed(checksums: Path, signature: Path, key: Path) -> bool:
    signers = key.with_name("signers")
    signers.write_text(f"maintainers {key.with_name('key.pub').read_text()}")
    command = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "maintainers", "-n", NAMESPACE, "-s"]
    done = subprocess.run([*command, str(signature)], input=checksums.read_bytes(), capture_output=True, check=False)
    return done.returncode == 0


def test_a_signature_is_of_these_checksums(tmp_path: Path, key: Path) -> None:
    checksums = release(tmp_path)
    signature = sign(checksums, key)
    assert is_signed(checksums, signature, key)
    checksums.write_text(checksums.read_text() + "0" * 64 + "  more.whl\n")
    assert not is_signed(checksums, signature, key)


def test_the_page_about_installing_names_every_extra() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (REPOSITORY / "docs/how-to/install.md").read_text()
    table = page[page.index("| extra |") : page.index("A call that needs")]
    assert set(re.findall(r"`([a-z]+)`(?=[ ,].*\|)", table)) >= set(extras) - {"dev"}


def test_errors_name_extras_that_exist() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = [*(REPOSITORY / "shared").rglob("*.py"), *(REPOSITORY / "services").rglob("*.py")]
    texts = [source.read_text() for source in sources]
    assert {each for text in texts for each in re.findall(r"shale\[([a-z]+)\]", text)} <= set(extras)
    assert not [each for text in texts for each in re.findall(r"install shale\[[a-z]+\]", text)], "zsh needs quotes"
