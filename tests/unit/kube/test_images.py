"""Tests of what an upgrade replaces, and of how images are built."""

from pathlib import Path

import pytest

from tests.kube.errors import KubeCheckError
from tests.kube.images import (
    CURRENT,
    PREVIOUS,
    SPARK,
    UNKNOWN,
    Image,
    build_command,
    read_list,
    require_different,
    write_list,
)


def _pair(previous: tuple[str, str], current: tuple[str, str]) -> list[Image]:
    return [Image("shale:previous", *previous), Image("shale:current", *current)]


def test_an_upgrade_needs_another_commit_and_another_image() -> None:
    require_different(_pair(("sha256:1", "a"), ("sha256:2", "b")))
    for same in (_pair(("sha256:1", "a"), ("sha256:1", "b")), _pair(("sha256:1", "a"), ("sha256:2", "a"))):
        with pytest.raises(KubeCheckError, match="name an older commit in PREVIOUS="):
            require_different(same)


def test_images_that_were_built_by_hand_may_not_say_their_commit() -> None:
    require_different(_pair(("sha256:1", UNKNOWN), ("sha256:2", UNKNOWN)))


@pytest.mark.parametrize("name", [PREVIOUS, CURRENT, SPARK])
def test_an_image_says_its_commit(name: str) -> None:
    command = build_command(name, "abc")
    assert command[command.index("--build-arg") + 1] == "REVISION=abc"
    assert command[-2] == name.removeprefix("docker.io/library/")


def test_only_the_image_of_spark_is_another_target() -> None:
    assert "--target" not in build_command(CURRENT, "abc")
    command = build_command(SPARK, "abc")
    assert command[command.index("--target") + 1] == "spark"


def test_the_check_reads_which_images_there_are(tmp_path: Path) -> None:
    images = _pair(("sha256:1", "a"), ("sha256:2", "b"))
    write_list(tmp_path / "images.json", images)
    assert list(read_list(tmp_path / "images.json").values()) == images
