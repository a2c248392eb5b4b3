"""Images by digest: the files follow one list, and a release needs every digest."""

import shutil
from pathlib import Path

import pytest

from deploy.release.changelog import ReleaseError
from deploy.release.images import LIST, TOOLS, USES, follow, images, look_up, problems, require_digests, with_digests
from tests.paths import REPOSITORY

DIGEST = "sha256:" + "0" * 64
LISTED = images((REPOSITORY / LIST).read_text())
TEXTS = {path: (REPOSITORY / path).read_text() for path in USES}


def test_every_default_is_in_the_list_and_agrees() -> None:
    assert list(problems(LISTED, TEXTS)) == []
    assert all(name in "".join(TEXTS.values()) for name in LISTED)


@pytest.mark.parametrize("path", USES, ids=str)
def test_a_default_that_differs_is_found(path: Path) -> None:
    pinned = {name: each._replace(digest=DIGEST) for name, each in LISTED.items()}
    told = list(problems(pinned, {path: TEXTS[path]}))
    assert told
    assert all(f"@{DIGEST}" in each for each in told)
    assert list(problems(pinned, {path: follow(pinned, TEXTS[path])})) == []
    assert follow(LISTED, follow(pinned, TEXTS[path])) == TEXTS[path]


def test_an_image_that_is_not_listed_is_found() -> None:
    told = list(problems({}, {Path("a"): "image: ${NEW_IMAGE:-a/b:1}\nimage: ${SHALE_IMAGE:-shale:local}\n"}))
    assert told == [f"a: NEW_IMAGE is not in {LIST}"]


def test_a_malformed_digest_is_refused() -> None:
    with pytest.raises(ReleaseError, match="A_IMAGE: a digest is"):
        images('[A_IMAGE]\nimage = "a:1"\ndigest = "sha256:12"\n')


def repository(folder: Path, digest: str) -> Path:
    listed = {name: each._replace(digest=digest) for name, each in LISTED.items()}
    text = (REPOSITORY / LIST).read_text().replace('digest = ""', f'digest = "{digest}"')
    (folder / LIST).parent.mkdir(parents=True)
    (folder / LIST).write_text(text)
    for path in USES:
        (folder / path).write_text(follow(listed, TEXTS[path]))
    return folder


def test_a_release_needs_every_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_digests(repository(tmp_path / "with", DIGEST), is_required=True)
    without = repository(tmp_path / "without", "")
    with pytest.raises(ReleaseError, match="no digest of BASE_IMAGE"):
        require_digests(without, is_required=True)
    require_digests(without, is_required=False)
    assert "without digests of BASE_IMAGE" in capsys.readouterr().err


@pytest.mark.parametrize("tool", TOOLS)
def test_a_registry_is_asked_by_the_program_that_is_there(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / tool
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *prom/prometheus:v3*) echo {DIGEST};; *) echo "$*" >&2; exit 1;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look_up("prom/prometheus:v3") == DIGEST
    with pytest.raises(ReleaseError, match=r"grafana:1: .*grafana:1"):
        look_up("grafana:1")
    one = '# a head\n[A_IMAGE]\nimage = "prom/prometheus:v3"\ndigest = ""\n'
    assert with_digests(one) == one.replace('""', f'"{DIGEST}"')


def test_without_a_program_nothing_is_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("crane") is None
    with pytest.raises(ReleaseError, match="install one of crane, skopeo, docker"):
        look_up("a:1")
