"""Invariants of the compactions file by role, and of compaction commits that readers rely on.

Checked from one version to the next, by the role of the process that wrote it (docs/reference/protocol.md 6.1, 6.3,
6.9, 6.10
and Appendix B, 5, 11, 12, 15).  The rules repeat those of the planner on purpose, in code that shares no mistake
with it.
"""

from collections.abc import Mapping

from shale.testing.mutation_log import Mutation
from shale.testing.sim_process import START_MS
from shale.types import Compaction, CompactionContext, Compactions, CompactionSpec, CompactionStatus, Manifest, Ulid

_S = CompactionStatus
_PLANNED = (_S.SCHEDULED, _S.RUNNING, _S.COMPACTED)
_BY_A_WORKER = {(_S.SCHEDULED, _S.RUNNING)} | {
    (_S.RUNNING, after) for after in (_S.RUNNING, _S.SCHEDULED, _S.COMPACTED, _S.FAILED)
}


def check_compactions_step(base: Compactions, new: Compactions, mutation: Mutation) -> None:
    """Check one step."""
    assert new.compactor_epoch >= base.compactor_epoch, f"{mutation}: compactor_epoch falls"
    _check_nothing_is_lost(base, new, mutation)
    for entry in new.entries:
        if entry.status is _S.RUNNING:
            assert entry.worker is not None, f"{mutation}: {entry.id} runs without a worker"
        before = base.get(entry.id)
        if before is not None:
            _check_status(before, entry, mutation)
            _check_progress(before, entry, mutation)
        if mutation.role == "worker":
            _check_workers_edit(before, entry, mutation)
        elif before is not None and before.status is _S.SUBMITTED and entry.status is _S.SCHEDULED:
            _check_excludes_others(entry, new, mutation)
    if mutation.role == "worker":
        assert new.compactor_epoch == base.compactor_epoch, f"{mutation}: a worker claimed the epoch"
        assert len(new.entries) == len(base.entries), f"{mutation}: a worker removed an entry"


def check_finished_in_manifest(base: Compactions, new: Compactions, latest: Manifest, mutation: Mutation) -> None:
    """Check that the results of finished compactions are in the manifest, which a coordinator writes first."""
    for entry in new.entries:
        before = base.get(entry.id)
        if entry.status is not _S.COMPLETED or before is None or before.status is _S.COMPLETED:
            continue
        kept = _sources(entry.spec) - _destination(entry.spec)
        left = kept & _present(entry.spec.segment, latest)
        assert not left, (
            f"{mutation}: {entry.id} is Completed, but its sources {sorted(map(str, left))} are still there"
        )
        if before.output_ssts:
            tree = latest.tree_of(entry.spec.segment)
            shown = {view.sst.id for run in tree.compacted for view in run.ssts} if tree is not None else set()
            missing = [str(sst.id) for sst in before.output_ssts if sst.id not in shown]
            assert not missing, f"{mutation}: {entry.id} is Completed, but the manifest lacks its outputs {missing}"


def check_inputs_are_pinned(
    base: Manifest, new: Manifest, versions: Mapping[int, Manifest], mutation: Mutation
) -> None:
    """Check that SSTs which a compactor removes from the manifest stay protected by a checkpoint for their readers.

    The checkpoint is listed and was live when the compactor sent its write, whose delay is unbounded.  A compactor and
    a collector in the process of a writer need none for outputs that the writer has not served: it replaces its own
    one after a commit, and there may be two commits before.  They need none at all if that of the writer has expired,
    because it was frozen: readers without a checkpoint have the time for which the collector keeps what is not needed.
    """
    roles = mutation.role.split("+")
    if "compactor" not in roles:
        return
    gone = base.ssts().keys() - new.ssts().keys()
    if not gone:
        return
    sent_ms = START_MS + int(mutation.sent_s * 1000)
    live = [checkpoint for checkpoint in new.checkpoints if not checkpoint.is_expired(sent_ms)]
    collects = {"writer", "gc"} <= set(roles)
    if collects and not any(checkpoint.writer_epoch == base.writer_epoch for checkpoint in live):
        return
    pinned: set[Ulid] = set()
    for checkpoint in live:
        if checkpoint.manifest_id in versions:
            pinned.update(versions[checkpoint.manifest_id].ssts())
            if checkpoint.writer_epoch == base.writer_epoch and collects:
                pinned.update(_outputs(base) - versions[checkpoint.manifest_id].ssts().keys())
    assert gone <= pinned, f"{mutation}: removed SSTs that no checkpoint keeps: {sorted(map(str, gone - pinned))}"


def _outputs(manifest: Manifest) -> set[Ulid]:
    return {view.sst.id for _, tree in manifest.trees() for run in tree.compacted for view in run.ssts}


def _check_nothing_is_lost(base: Compactions, new: Compactions, mutation: Mutation) -> None:
    # A coordinator may finish an entry and forget it in one step, if a younger finished one stays.
    youngest_finished = max((entry.id for entry in new.entries if not entry.is_active), default=Ulid(0))
    forgettable = youngest_finished if mutation.role == "compactor" else Ulid(0)
    for entry in base.entries:
        kept = new.get(entry.id) is not None or not entry.is_active or entry.id < forgettable
        assert kept, f"{mutation}: the active compaction {entry.id} is gone"


def _check_status(before: Compaction, now: Compaction, mutation: Mutation) -> None:
    assert now.spec == before.spec, f"{mutation}: the spec of {now.id} changed"
    if before.status.is_finished:
        assert now.status is before.status, (
            f"{mutation}: {now.id} was {before.status.name} and is now {now.status.name}"
        )
    if now.status is _S.COMPACTED and before.status is not _S.COMPACTED:
        assert before.status is _S.RUNNING, f"{mutation}: {now.id} was {before.status.name} and not Running"
        assert _worker(before) == _worker(now), f"{mutation}: {now.id} was finished by a worker that did not own it"


def _check_progress(before: Compaction, now: Compaction, mutation: Mutation) -> None:
    """Check that progress only grows: same ranges, same barrier, longer lists of outputs."""
    if before.ctx is None or now.status not in (_S.SCHEDULED, _S.RUNNING) or before.status is _S.SUBMITTED:
        return
    assert now.ctx is not None, f"{mutation}: the progress of {now.id} is gone"
    assert _extends(before.ctx, now.ctx), f"{mutation}: the progress of {now.id} went back or aside"


def _extends(old: CompactionContext, new: CompactionContext) -> bool:
    return (
        new.retention_min_seq == old.retention_min_seq
        and [sub.range for sub in new.subcompactions] == [sub.range for sub in old.subcompactions]
        and all(
            now.output_ssts[: len(was.output_ssts)] == was.output_ssts
            for was, now in zip(old.subcompactions, new.subcompactions, strict=True)
        )
    )


def _check_workers_edit(before: Compaction | None, now: Compaction, mutation: Mutation) -> None:
    assert before is not None, f"{mutation}: a worker added {now.id}"
    if now == before:
        return
    step = (before.status, now.status)
    assert step in _BY_A_WORKER, f"{mutation}: a worker made {now.id} {now.status.name} from {before.status.name}"
    owners = {_worker(before), _worker(now)} - {None}
    assert len(owners) == 1, f"{mutation}: a worker took {now.id} from another one"
    if now.status is _S.FAILED:
        assert _worker(now) is not None, f"{mutation}: a worker failed {now.id} and is not named, as in a cancellation"


def _check_excludes_others(entry: Compaction, new: Compactions, mutation: Mutation) -> None:
    """Check V9 and V12 for entries that a coordinator schedules."""
    touched = _sources(entry.spec) | _destination(entry.spec)
    for other in new.entries:
        if other.id == entry.id or other.status not in _PLANNED:
            continue
        shared = touched & (_sources(other.spec) | _destination(other.spec))
        assert not shared, f"{mutation}: {entry.id} was scheduled beside {other.id}, and both touch {shared}"
        same_tree = other.spec.segment == entry.spec.segment and other.status is not _S.COMPACTED
        both_take_l0 = same_tree and bool(other.spec.l0_view_ids) and bool(entry.spec.l0_view_ids)
        assert not both_take_l0, f"{mutation}: {entry.id} and {other.id} compact L0s of one tree"


def _sources(spec: CompactionSpec) -> set[object]:
    return {*((spec.segment, view_id) for view_id in spec.l0_view_ids), *(int(run) for run in spec.sorted_runs)}


def _destination(spec: CompactionSpec) -> set[object]:
    destination = getattr(spec, "destination", None)
    return set() if destination is None else {int(destination)}


def _present(segment: bytes, manifest: Manifest) -> set[object]:
    tree = manifest.tree_of(segment)
    if tree is None:
        return set()
    return {*((segment, view.id) for view in tree.l0), *(int(run.id) for run in tree.compacted)}


def _worker(entry: Compaction) -> str | None:
    return entry.worker.worker_id if entry.worker is not None else None
