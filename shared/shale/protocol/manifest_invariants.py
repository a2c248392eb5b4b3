"""The invariants of every new manifest, checked before it is written (docs/reference/protocol.md 3.7).

Only the change is checked.  A violation that the base already has is logged and does not block, because otherwise one
mistake of another program would stop every daemon.  The order of L0 times (the first rule) has no such
exception, because only SSTs that the change adds can break it.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from shale.errors import CorruptionError, InvalidClockTick, ProtocolPanic
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Manifest, Tree

log = get_logger("manifest")


def check_manifest(base: Manifest, new: Manifest) -> None:
    """Return if ``new`` may follow ``base``.

    Raises:
        InvalidClockTick: a new L0 is older than what the base has, so a collector could delete it too early.
        ProtocolPanic: the new manifest violates an invariant.
    """
    _check_l0_times(base, new)
    inherited = set(violations(base))
    for violation in violations(new):
        if violation not in inherited:
            raise ProtocolPanic("manifest invariant", violation=violation)
        log.error(Event.MANIFEST_INVARIANT_INHERITED, violation=violation)
    for violation in _regressions(base, new):
        raise ProtocolPanic("manifest invariant", violation=violation)


def newest_l0_ms(manifest: Manifest) -> int:
    """Return the lower bound of the times of unpublished L0s: the newest live L0, or a watermark, of any tree.

    Milliseconds since 1970; 0 if no tree ever had an L0.  Writer, collector and the first invariant share it.
    """
    return max((_newest_l0_ms_of(tree) for _, tree in manifest.trees()), default=0)


def violations(manifest: Manifest) -> Iterator[str]:
    """Yield the rules about one version that it breaks, each with its place."""
    seen_runs: set[int] = set()
    for prefix, tree in manifest.trees():
        run_ids = [run.id for run in tree.compacted]
        if any(left <= right for left, right in pairwise(run_ids)):
            yield f"runs of segment {prefix.hex()!r} do not descend"
        yield from (f"run {run_id} exists in two trees" for run_id in run_ids if run_id in seen_runs)
        seen_runs.update(run_ids)
    prefixes = [segment.prefix for segment in manifest.segments]
    if b"" in prefixes:
        yield "a segment has an empty prefix"
    for left, right in pairwise(prefixes):
        if left >= right:
            yield f"segments {left.hex()} and {right.hex()} are not in order"
        elif right.startswith(left):
            yield f"segment {left.hex()} contains segment {right.hex()}"
    if manifest.replay_after_wal_id >= manifest.next_wal_sst_id:
        yield "replay_after_wal_id is not below next_wal_sst_id"


_NEVER_DECREASING: dict[str, Callable[[Manifest], int]] = {
    "next_wal_sst_id": lambda manifest: manifest.next_wal_sst_id,
    "replay_after_wal_id": lambda manifest: manifest.replay_after_wal_id,
    "last_l0_seq": lambda manifest: manifest.last_l0_seq,
    "writer_epoch": lambda manifest: manifest.writer_epoch,
    "compactor_epoch": lambda manifest: manifest.compactor_epoch,
}


NUMBER_MAX = 2**63
"""No database reaches it; a number above it is damage, and the next one may not fit into its field."""


def require_room(manifest: Manifest, path: str) -> None:
    """Check that the numbers that processes count up are far from their ends.

    Args:
        manifest: the newest one.
        path: its key.

    Raises:
        CorruptionError: names the manifest and the field.
    """
    for name, get in _NEVER_DECREASING.items():
        if get(manifest) >= NUMBER_MAX:
            raise CorruptionError(
                f"{name} is {get(manifest)}, which no database reaches: restore this version from a backup", path=path
            )


def decreases(base: Manifest, new: Manifest) -> Iterator[tuple[str, int, int]]:
    """Yield each value that must not decrease and does: its name, and both values."""
    for name, get in _NEVER_DECREASING.items():
        if get(new) < get(base):
            yield name, get(base), get(new)


def _regressions(base: Manifest, new: Manifest) -> Iterator[str]:
    """Yield the rules that the step from one version to the next breaks."""
    for name, before, after in decreases(base, new):
        yield f"{name} falls from {before} to {after}"
    if not base.external_dbs:
        return
    used, listed = new.ssts(), {sst_id for external in new.external_dbs for sst_id in external.sst_ids}
    for external in base.external_dbs:
        for sst_id in external.sst_ids:
            # A reader would search an unlisted id in the database's own directory.
            if sst_id in used and sst_id not in listed:
                yield f"SST {sst_id} of {external.path} is used but no longer listed"


def _check_l0_times(base: Manifest, new: Manifest) -> None:
    newest_ms = newest_l0_ms(base)
    known = {view.sst.id for _, tree in base.trees() for view in tree.l0}
    older = {
        view.sst.id
        for _, tree in new.trees()
        for view in tree.l0
        if view.sst.id.ms < newest_ms and view.sst.id not in known
    }
    if older:
        older.difference_update(view.sst.id for view in base.views())
    for sst_id in older:
        raise InvalidClockTick(f"L0 {sst_id} is older than {newest_ms} ms, the newest of its base")


def _newest_l0_ms_of(tree: Tree) -> int:
    if tree.l0:
        return max(view.sst.id.ms for view in tree.l0)
    watermark = tree.last_compacted_l0_sst_view_id
    return 0 if watermark is None else watermark.ms
