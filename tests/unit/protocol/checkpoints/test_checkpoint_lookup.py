"""A checkpoint by its id or by its name."""

from uuid import UUID

import pytest

from shale.errors import AmbiguousCheckpoint, CheckpointMissing, InvalidRequestError
from shale.protocol.checkpoints import require_checkpoint_reference, resolve_checkpoint
from shale.types import Checkpoint, Manifest, ManifestId

NOW_MS = 50_000
ODD = "00000000-0000-0000-0000-000000000063"


def entry(number: int, name: str | None, expire_s: int = 0) -> Checkpoint:
    return Checkpoint(id=UUID(int=number), manifest_id=ManifestId(1), expire_s=expire_s, create_s=1, name=name)


LISTED = Manifest(
    checkpoints=(
        entry(1, "nightly", expire_s=50),
        entry(2, "nightly", expire_s=51),
        entry(3, "weekly"),
        entry(4, "weekly"),
        entry(5, "over", expire_s=1),
        entry(6, None),
        entry(7, ""),
        entry(8, ODD),
        entry(9, " with / and ünicode@1 "),
        entry(10, str(UUID(int=3))),
    )
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (UUID(int=2), 2),
        (str(UUID(int=6)), 6),
        (f" {UUID(int=6)}\n", 6),
        (UUID(int=6).hex.upper(), 6),
        pytest.param("nightly", 2, id="one that is over gives way"),
        pytest.param(ODD, 8, id="a name that looks like an id"),
        pytest.param(str(UUID(int=3)), 3, id="an id goes before a name"),
        (" with / and ünicode@1 ", 9),
    ],
)
def test_an_id_or_a_name_selects_a_checkpoint(wanted: UUID | str, found: int) -> None:
    for expired_too in (False, True):
        assert resolve_checkpoint(LISTED, wanted, NOW_MS, expired_too=expired_too).id == UUID(int=found)


@pytest.mark.parametrize("wanted", [UUID(int=99), UUID(int=1), "over", "Weekly", str(UUID(int=98)), UUID(int=5)])
def test_an_unknown_checkpoint_is_missing(wanted: UUID | str) -> None:
    with pytest.raises(CheckpointMissing) as caught:
        resolve_checkpoint(LISTED, wanted, NOW_MS)
    assert str(wanted) in str(caught.value)


def test_an_expired_one_can_still_be_changed() -> None:
    assert resolve_checkpoint(LISTED, "over", NOW_MS, expired_too=True).id == UUID(int=5)


def test_several_of_a_name_are_listed() -> None:
    with pytest.raises(AmbiguousCheckpoint, match="2 checkpoints are named 'weekly'") as caught:
        resolve_checkpoint(LISTED, "weekly", NOW_MS)
    assert caught.value.ids == (UUID(int=3), UUID(int=4))
    assert str(UUID(int=3)) in str(caught.value)
    assert str(UUID(int=4)) in str(caught.value)
    many = Manifest(checkpoints=tuple(entry(number, "n") for number in range(1, 1001)))
    with pytest.raises(AmbiguousCheckpoint, match="and 980 more"):
        resolve_checkpoint(many, "n", NOW_MS)


@pytest.mark.parametrize("value", ["", "  ", None, 5, b"nightly"])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"source: .* is neither the id of a checkpoint"):
        require_checkpoint_reference(value, what="source")
