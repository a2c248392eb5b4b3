"""A release is verified: each change of each file is found, also where checksums were made to fit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.release.components import image_problems, installed_packages
from deploy.release.verify import main, problems
from tests.unit.deploy.release import small_release as small
from tests.unit.deploy.release.small_release import (
    COMMIT,
    FILES,
    LOCK,
    SBOM,
    SDIST,
    SOURCES,
    STATED,
    WHEEL,
    SmallRelease,
)


@pytest.fixture
def release(tmp_path: Path) -> SmallRelease:
    return SmallRelease(tmp_path)


def found(release: SmallRelease, **options: object) -> list[str]:
    """Return the problems of a release, without its signature."""
    return list(problems(release.folder, signers=None, **options))  # type: ignore[arg-type]


def test_a_release_as_it_was_made(release: SmallRelease, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(release.folder), "--allowed-signers", str(release.signers), "--commit", COMMIT])
    assert (ended.value.code, capsys.readouterr().err) == (0, "")


@pytest.mark.parametrize("name", [*FILES, "SHA256SUMS", "SHA256SUMS.sig"])
@pytest.mark.parametrize("change", ["changed", "gone"])
def test_each_file_is_protected(release: SmallRelease, name: str, change: str) -> None:
    path = release.folder / name
    data = path.read_bytes()
    path.unlink()
    if change == "changed":
        path.write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
    with pytest.raises(SystemExit) as ended:
        main([str(release.folder), "--allowed-signers", str(release.signers)])
    assert ended.value.code != 0


@pytest.mark.parametrize("name", [*FILES, "SHA256SUMS"])
def test_checksums_that_fit_are_not_signed(release: SmallRelease, name: str) -> None:
    with (release.folder / name).open("ab") as file:
        file.write(b" ")
    release.sum_up()
    if name == "SHA256SUMS":
        return
    signed = list(problems(release.folder, signers=release.signers))
    assert any("SHA256SUMS.sig" in each for each in signed)


def test_the_key_of_another(release: SmallRelease, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = SmallRelease(tmp_path / "other")
    assert any("SHA256SUMS.sig" in each for each in problems(release.folder, signers=other.signers))


def test_a_file_that_is_not_listed(release: SmallRelease) -> None:
    (release.folder / "shale-1.3-py3-none-any.whl").write_bytes(b"")
    assert found(release) == ["shale-1.3-py3-none-any.whl is not in SHA256SUMS"]


LOCKED = json.loads(small.components())
OTHER_SOURCES = {**SOURCES, "shared/shale/__init__.py": b"x = 2\n"}
VENDORED = {**small.installed(), "requests/__init__.py": b""}


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        (SBOM, small.components(LOCK.replace("4.14", "4.13")).encode(), "anyio: 4.13 with 2 hashes in it, 4.14"),
        (SBOM, small.components(LOCK.replace("c" * 64, "d" * 64)).encode(), "h-11: 0.16 with 1 hashes in it, 0.16"),
        (SBOM, small.components(LOCK.split("h_11")[0]).encode(), "h-11: none in it, 0.16"),
        (SBOM, json.dumps({**LOCKED, "specVersion": "0"}).encode(), "it is not of CycloneDX 1.6"),
        (SBOM, json.dumps({**LOCKED, "more": 1}).encode(), "it is not valid"),
        (SBOM, small.components().replace('"1.2"', '"1.3"').encode(), "it is about shale 1.3, not shale 1.2"),
        ("requirements.lock", (LOCK + f"z==1 \\\n    --hash=sha256:{'e' * 64}\n").encode(), "z: none in it, 1"),
        (WHEEL, small.wheel_bytes(small.installed(OTHER_SOURCES)), "shale/__init__.py is not that of the source"),
        (WHEEL, small.wheel_bytes(VENDORED), "installs requests, which the components do not name"),
        (WHEEL, small.wheel_bytes(small.installed(), {"shale/__init__.py": b"y"}), "is not what its record says"),
        (WHEEL, small.wheel_bytes(small.installed(), {"shale/more.py": b""}), "lacks shale/more.py"),
        (SDIST, small.source_bytes(OTHER_SOURCES), "shale/__init__.py is not that of the source"),
    ],
    ids=lambda value: "data" if isinstance(value, bytes) else value,
)
def test_what_is_inside(release: SmallRelease, name: str, data: bytes, told: str) -> None:
    release.forge(name, data)
    assert [each for each in found(release) if told in each], found(release)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("in-toto.io/Statement/v1", "in-toto.io/Statement/v0", "it is of another type"),
        ("slsa.dev/provenance/v1", "slsa.dev/provenance/v2", "it is of another type"),
        ("release-machine", "another-machine", "it names another builder: urn:shale:builder:another-machine"),
        (f'"commit": "{COMMIT}"', f'"commit": "{COMMIT[::-1]}"', "version or commit differ"),
        (COMMIT, COMMIT[::-1], f"it is of commit {COMMIT[::-1]}, not {COMMIT}"),
        ('"version": "1.2"', '"version": "1.3"', "version or commit differ"),
        ('"requirements-dev.lock"', '"other.lock"', "its inputs are other.lock"),
        (WHEEL, "shale-other.whl", "shale-other.whl: it has"),
        ('"subject"', '"subjects"', "no statement of in-toto"),
    ],
)
def test_the_provenance(release: SmallRelease, old: str, new: str, told: str) -> None:
    text = (release.folder / STATED).read_text()
    assert old in text
    release.forge(STATED, text.replace(old, new).encode())
    assert [each for each in found(release, commit=COMMIT) if told in each]


def test_the_provenance_of_another_lock(release: SmallRelease) -> None:
    stated = json.loads((release.folder / STATED).read_text())
    for each in stated["predicate"]["buildDefinition"]["resolvedDependencies"]:
        if each["name"] == "requirements.lock":
            each["digest"]["sha256"] = "0" * 64
    release.forge(STATED, json.dumps(stated).encode())
    assert found(release) == [f"{STATED}: its requirements.lock is not that of the release"]


def test_the_sources_are_those_of_the_commit(release: SmallRelease, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    for name, data in SOURCES.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_bytes(data)
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "a"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    told = found(release, commit=commit, repository=repository)
    assert told == [f"{STATED}: it is of commit {COMMIT}, not {commit}"]
    release.forge(SDIST, small.source_bytes({**SOURCES, "pyproject.toml": b"[project]\nname='x'\n"}))
    told = found(release, commit=commit, repository=repository)
    assert told[1:] == ["the source distribution's pyproject.toml is not that of the commit"]


def test_the_packages_of_an_image() -> None:
    text = small.components()
    whole = {"anyio": "4.14", "h-11": "0.16", "shale": "1.2"}
    assert list(image_problems(text, whole, "1.2")) == []
    assert list(image_problems(text, {**whole, "anyio": "4.15", "pip": "1"}, "1.2")) == [
        "the image has anyio 4.15, the list has 4.14",
        "the image has pip 1, the list has none",
    ]
    assert list(image_problems(text, {}, "1.2")) == ["the image has no shale"]


def test_the_packages_of_a_python_are_listed() -> None:
    assert {"shale", "pytest", "pydantic-settings"} <= installed_packages([sys.executable]).keys()
