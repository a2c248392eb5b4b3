"""Ownership of fields and the two rebases: docs/reference/protocol.md 3.3 to 3.6, traces T3.a and T3.b."""

from dataclasses import fields, replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import ProtocolPanic
from shale.protocol.rebase import merge_trees, prune_external_ssts, rebase_compactor, rebase_writer
from shale.types import (
    Checkpoint,
    Epoch,
    ExclusiveModes,
    ExternalDb,
    Manifest,
    ManifestId,
    Segment,
    Seq,
    SortedRun,
    Tree,
    WalId,
)
from tests.unit.protocol.values import run_of, times, tree, ulid, view


def manifest_of(name: str, number: int, *, initialized: bool) -> Manifest:
    """Return a manifest whose fields all differ from those of another name, number and state."""
    return Manifest(
        initialized=initialized,
        writer_epoch=Epoch(number + 3),
        compactor_epoch=Epoch(number + 4),
        replay_after_wal_id=WalId(number + 7),
        next_wal_sst_id=WalId(number + 9),
        segment_extractor_name=name,
        last_l0_clock_tick=number + 10,
        last_l0_seq=Seq(number + 20),
        recent_snapshot_min_seq=Seq(number + 19),
        sequence_tracker=name.encode(),
        wal_object_store_uri=name,
        exclusive=ExclusiveModes(max_parallel_writes=number + 1),
        checkpoints=(Checkpoint(id=UUID(int=number + 1), manifest_id=ManifestId(number + 1)),),
        external_dbs=(ExternalDb(path=name, source_checkpoint_id=UUID(int=number + 9)),),
    )


LOCAL = manifest_of("local", 0, initialized=True)
REMOTE = manifest_of("remote", 100, initialized=False)
WRITERS = {
    "initialized",
    "segment_extractor_name",
    "next_wal_sst_id",
    "replay_after_wal_id",
    "last_l0_clock_tick",
    "last_l0_seq",
    "recent_snapshot_min_seq",
    "sequence_tracker",
    "wal_object_store_uri",
}
TREES = {"tree", "segments"}


def from_local(merged: Manifest) -> set[str]:
    return {field.name for field in fields(Manifest) if getattr(merged, field.name) == getattr(LOCAL, field.name)}


def test_every_field_has_its_owner() -> None:
    """The local values of all fields differ from the remote ones, so each field shows where it came from."""
    assert from_local(rebase_writer(LOCAL, REMOTE)) - TREES == WRITERS
    assert from_local(rebase_compactor(LOCAL, REMOTE)) - TREES == {"wal_object_store_uri"}


@pytest.mark.parametrize(
    ("writer", "watermark", "left"),
    [
        pytest.param((), None, [], id="nothing"),
        pytest.param((3, 2, 1), None, [3, 2, 1], id="no watermark keeps all"),
        pytest.param((5, 4, 3, 2), 3, [5, 4], id="at and after the watermark"),
        pytest.param((5, 4), 5, [], id="everything consumed"),
        pytest.param((7, 6), 3, [7, 6], id="the watermark is gone already"),
    ],
)
def test_the_watermark_divides_l0(writer: tuple[int, ...], watermark: int | None, left: list[int]) -> None:
    merged = merge_trees(writer=tree(writer), compactor=tree((99,), (run_of(1, 1),), watermark))
    assert times(merged) == left
    assert [run.id for run in merged.compacted] == [1]
    assert merged.last_compacted_l0_sst_view_id == (None if watermark is None else ulid(watermark))


def test_another_view_of_the_watermarks_sst_is_kept() -> None:
    """Two projections of one SST in a union: compacting one half must not discard the other."""
    left, right = view(18, sst_ms=8), view(28, sst_ms=8)
    compactor = Tree(last_compacted_l0_sst_view_id=right.id, last_compacted_l0_sst_id=right.sst.id)
    assert merge_trees(writer=Tree(l0=(left, right)), compactor=compactor).l0 == (left,)


def test_a_watermark_of_version_1_names_an_sst() -> None:
    writer = Tree(l0=(view(30, sst_ms=3), view(20, sst_ms=2)))
    merged = merge_trees(writer=writer, compactor=Tree(last_compacted_l0_sst_id=ulid(2)))
    assert times(merged) == [30]


def test_t3a_writer_and_compactor_at_once() -> None:
    base = replace(Manifest(), tree=tree((4, 3, 2, 1)))
    flushed = replace(base, tree=replace(base.tree, l0=(view(5), *base.tree.l0)), last_l0_seq=Seq(5))
    compacted = replace(base, tree=tree((4, 3), (run_of(0, 1),), 2))
    both = rebase_writer(flushed, compacted)
    assert (times(both.tree), [run.id for run in both.tree.compacted], both.last_l0_seq) == ([5, 4, 3], [0], 5)
    assert rebase_compactor(compacted, flushed) == both


def test_t3b_a_checkpoint_of_another_process_stays() -> None:
    checkpoint = Checkpoint(id=UUID(int=5), manifest_id=ManifestId(6))
    local = replace(Manifest(), tree=tree((), (run_of(0, 1),), 1))
    merged = rebase_compactor(local, replace(Manifest(), tree=tree((1,)), checkpoints=(checkpoint,)))
    assert merged.checkpoints == (checkpoint,)
    assert [run.id for run in merged.tree.compacted] == [0]


def with_segments(**trees: Tree) -> Manifest:
    segments = tuple(Segment(prefix=name.encode(), tree=trees[name]) for name in sorted(trees))
    return replace(Manifest(), segments=segments)


def test_the_writer_inserts_and_prunes_segments() -> None:
    local = with_segments(a=tree((5,)), b=tree((4,)), d=tree())
    remote = with_segments(b=tree((), (run_of(2, 4),), 4), c=tree((), (run_of(1, 1),)), d=tree((), (), 3))
    merged = rebase_writer(local, remote)
    assert [(segment.prefix, times(segment.tree)) for segment in merged.segments] == [
        (b"a", [5]),
        (b"b", []),
        (b"c", []),
    ]


def test_the_compactor_follows_the_writers_segments() -> None:
    local = with_segments(a=tree((), (), 5), b=tree((), (), 3))
    remote = with_segments(b=tree((7, 3)), c=tree((8,)))
    merged = rebase_compactor(local, remote)
    assert [(segment.prefix, times(segment.tree)) for segment in merged.segments] == [(b"b", [7]), (b"c", [8])]


def test_a_drained_segment_stays_until_the_writer_prunes_it() -> None:
    drained = with_segments(a=tree((), (), 5))
    merged = rebase_compactor(drained, with_segments(a=tree((5,))))
    assert [(segment.prefix, segment.tree.is_empty) for segment in merged.segments] == [(b"a", True)]
    assert rebase_writer(with_segments(a=tree((5,))), drained).segments == ()


def test_a_pruned_segment_with_data_is_a_panic() -> None:
    with pytest.raises(ProtocolPanic):
        rebase_compactor(with_segments(a=tree((), (run_of(0, 1),))), Manifest())


def test_external_ids_shrink_to_what_is_shown_and_entries_stay() -> None:
    external = ExternalDb(path="p", source_checkpoint_id=UUID(int=1), sst_ids=(ulid(3), ulid(1), ulid(2)))
    manifest = replace(Manifest(), tree=tree((2,), (run_of(0, 3),)), external_dbs=(external,))
    assert prune_external_ssts(manifest).external_dbs == (replace(external, sst_ids=(ulid(3), ulid(2))),)
    assert prune_external_ssts(replace(manifest, tree=Tree())).external_dbs == (replace(external, sst_ids=()),)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Manifest, Manifest, Manifest]:
    """Return a base, and the concurrent changes of writer and compactor."""
    l0_count = draw(st.integers(0, 6))
    run_count = draw(st.integers(0, 3))
    runs = tuple(run_of(run_count - index, 100 + index) for index in range(run_count))
    base = replace(Manifest(), tree=tree(tuple(range(200 + l0_count, 200, -1)), runs))
    pushed = tuple(view(ms) for ms in range(300 + draw(st.integers(0, 4)), 300, -1))
    writer = replace(base, tree=replace(base.tree, l0=(*pushed, *base.tree.l0)), last_l0_seq=Seq(len(pushed)))
    taken = draw(st.integers(0, l0_count))
    if not taken:
        return base, writer, base
    kept, consumed = base.tree.l0[: l0_count - taken], base.tree.l0[l0_count - taken :]
    output: tuple[SortedRun, ...] = (run_of(run_count + 1, 400), *base.tree.compacted)
    compacted = Tree(l0=kept, compacted=output, last_compacted_l0_sst_view_id=consumed[0].id)
    return base, writer, replace(base, tree=compacted)


@given(histories())
def test_the_order_of_commits_does_not_matter(history: tuple[Manifest, Manifest, Manifest]) -> None:
    _, writer, compactor = history
    assert rebase_writer(writer, compactor) == rebase_compactor(compactor, writer)


@given(histories())
def test_a_rebase_can_be_repeated(history: tuple[Manifest, Manifest, Manifest]) -> None:
    """A commit with a lost response is rebased onto itself."""
    _, writer, compactor = history
    merged = rebase_writer(writer, compactor)
    assert rebase_writer(merged, merged) == merged
    assert rebase_writer(writer, merged) == merged
    assert rebase_compactor(compactor, merged) == merged
