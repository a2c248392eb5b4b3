"""The first manifest of a clone (docs/reference/protocol.md 10.2, step 6)."""

from dataclasses import replace

import pytest

from shale.clones.clone_manifest import cloned
from shale.errors import InvalidDbState, InvalidUnion
from shale.types import Checkpoint, Epoch, ExternalDb, Manifest, ManifestId, Seq, WalId
from tests.unit.clones.values import Uuids, external, source, tree, ulid, uuid, view

PARENT = Manifest(
    tree=tree([view(3, b"a", b"b"), view(1, b"a", b"b")]),
    writer_epoch=Epoch(4),
    compactor_epoch=Epoch(2),
    replay_after_wal_id=WalId(6),
    next_wal_sst_id=WalId(9),
    last_l0_seq=Seq(30),
    checkpoints=(Checkpoint(id=uuid(1), manifest_id=ManifestId(3)),),
)


def test_everything_is_copied_but_checkpoints() -> None:
    clone = cloned(source("p", PARENT), Uuids())
    own = ExternalDb(path="p", source_checkpoint_id=uuid(1), final_checkpoint_id=uuid(1001), sst_ids=(ulid(1), ulid(3)))
    assert clone == replace(PARENT, initialized=False, checkpoints=(), external_dbs=(own,))


def test_a_nested_clone_hangs_on_the_pins_of_its_parent() -> None:
    parent = replace(PARENT, external_dbs=(external("g", 50, 1), external("gone", 51)))
    assert cloned(source("p", parent), Uuids()).external_dbs == (
        ExternalDb(path="g", source_checkpoint_id=uuid(50), final_checkpoint_id=uuid(1001), sst_ids=(ulid(1),)),
        ExternalDb(path="p", source_checkpoint_id=uuid(1), final_checkpoint_id=uuid(1002), sst_ids=(ulid(3),)),
    )


def test_a_parent_without_ssts_of_its_own_is_listed_all_the_same() -> None:
    parent = replace(PARENT, external_dbs=(external("g", 50, 1, 3),))
    assert cloned(source("p", parent), Uuids()).external_dbs[-1].sst_ids == ()


def test_borrowings_without_a_pin_or_of_one_id_in_two_places() -> None:
    with pytest.raises(InvalidDbState, match="without a checkpoint"):
        cloned(source("p", replace(PARENT, external_dbs=(external("g", None, 1),))), Uuids())
    with pytest.raises(InvalidUnion, match="collision"):
        cloned(source("p", replace(PARENT, external_dbs=(external("g", 5, 1), external("h", 6, 1)))), Uuids())
