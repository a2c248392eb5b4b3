"""The output of ``manifest diff`` for the changes that processes make."""

from dataclasses import replace
from uuid import UUID

from shale.admin.manifest_diff import Change, diff
from shale.format.sequence_tracker import SequenceTracker
from shale.types import Checkpoint, ExternalDb, Manifest, ManifestId
from tests.unit.compactor.values import manifest, tree

BEFORE = manifest(tree((4, 3), (2, 1)), log=tree((14,), ()))


def told(old: Manifest, new: Manifest) -> list[tuple[str, str, str, bytes]]:
    return [(change.kind, change.what, change.name, change.segment) for change in diff(old, new)]


def test_nothing_changed() -> None:
    assert list(diff(BEFORE, BEFORE)) == []


def test_a_compaction_takes_l0s_and_makes_a_run() -> None:
    after = replace(
        BEFORE,
        tree=replace(
            BEFORE.tree,
            l0=BEFORE.tree.l0[:1],
            compacted=(replace(BEFORE.tree.compacted[0], id=9), *BEFORE.tree.compacted[1:]),
            last_compacted_l0_sst_view_id=BEFORE.tree.l0[1].id,
        ),
    )
    gone = str(BEFORE.tree.l0[1].id)
    assert told(BEFORE, after) == [
        ("removed", "l0", gone, b""),
        ("removed", "run", "2", b""),
        ("added", "run", "9", b""),
        (
            "added" if BEFORE.tree.last_compacted_l0_sst_view_id is None else "changed",
            "watermark",
            "last_compacted_l0",
            b"",
        ),
    ]


def test_a_segment_that_ends_is_told_with_its_parts() -> None:
    after = replace(BEFORE, segments=())
    (prefix,) = [segment.prefix for segment in BEFORE.segments]
    view = BEFORE.segments[0].tree.l0[0]
    assert told(BEFORE, after)[:2] == [
        ("removed", "segment", prefix.hex(), prefix),
        ("removed", "l0", str(view.id), prefix),
    ]


def test_fields_checkpoints_and_databases_that_are_borrowed_from() -> None:
    entry = Checkpoint(id=UUID(int=1), manifest_id=ManifestId(4), name="nightly")
    parent = ExternalDb(path="p", source_checkpoint_id=UUID(int=2), final_checkpoint_id=UUID(int=3))
    old = replace(Manifest(), checkpoints=(entry,), external_dbs=(parent,))
    new = replace(
        Manifest(),
        writer_epoch=1,
        checkpoints=(replace(entry, expire_s=1_700_000_000), replace(entry, id=UUID(int=5))),
        sequence_tracker=SequenceTracker([(1, 5)]).encode(),
    )
    assert list(diff(old, new)) == [
        Change(what="field", name="writer_epoch", before=0, after=1),
        Change(what="field", name="sequence_tracker_points", before=0, after=1),
        Change(
            what="checkpoint",
            name=str(entry.id),
            before="manifest 4, for ever, nightly",
            after="manifest 4, until 2023-11-14T22:13:20.000Z, nightly",
        ),
        Change(what="checkpoint", name=str(UUID(int=5)), after="manifest 4, for ever, nightly"),
        Change(
            what="external_db",
            name=f"p@{parent.source_checkpoint_id}",
            before=f"0 SSTs, kept by {parent.final_checkpoint_id}",
        ),
    ]
