"""SSTs that were built elsewhere become part of a database in one manifest: pure rules.

A load is one commit of a writer.  All its rows have one sequence number, above everything that was there, and one
creation time; no key occurs twice.  In a new database its SSTs are one sorted run.  In an existing one each of them is
an L0, because runs are older than every L0 (docs/protocol.md 4.8, 7.1).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from shale.engine.l0_plan import with_wal_frontier
from shale.errors import InvalidRequestError
from shale.format.sequence_tracker import SequenceTracker
from shale.types import Manifest, RunId, Seq, SortedRun, Sst, SstView, Tree, WalId

_FIRST_RUN = RunId(0)
_SHOWN_BYTES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStamp:
    """What all rows and SSTs of one load share.

    ``create_ts`` is the commit's time in milliseconds.  No SST gets an id of a time before ``not_before_ms``: a
    collector takes what is older than the newest published L0 for garbage (docs/protocol.md 8.2).  ``keeps_expired``:
    rows that are expired already hide older versions of their key, so they become tombstones; where there is nothing
    older they are left out.
    """

    seq: int
    create_ts: int
    not_before_ms: int
    keeps_expired: bool


def in_key_order(ssts: Iterable[Sst]) -> tuple[Sst, ...]:
    """The SSTs of a load by key.

    Raises:
        InvalidRequestError: two of them share a key; names it.
    """
    ordered = sorted(ssts, key=lambda sst: sst.info.first_entry or b"")
    for left, right in pairwise(ordered):
        last, first = left.info.last_entry or b"", right.info.first_entry or b""
        if last >= first:
            raise InvalidRequestError(
                f"two SSTs of the load, {left.id} and {right.id}, meet at key {shown(first)}: "
                "rows must be partitioned and sorted by key, and no key may occur twice"
            )
    return tuple(ordered)


def new_database(ssts: Sequence[Sst], stamp: LoadStamp) -> Manifest:
    """The first version of a database that holds the rows of one load, which come by key.

    No writer was there: the epochs are 0 and the WAL is empty, so whoever opens it finds what a clean close leaves.
    """
    if not ssts:
        return Manifest()
    run = SortedRun(id=_FIRST_RUN, ssts=tuple(map(SstView.identity, ssts)))
    return _with_commit(Manifest(tree=Tree(compacted=(run,))), stamp)


def with_loaded(manifest: Manifest, ssts: Iterable[Sst], stamp: LoadStamp, *, last_wal_id: int) -> Manifest:
    """The writer's fields after a load.

    Args:
        manifest: whose L0s hold every row of the WAL.
        last_wal_id: the fence of the writer that loads, which has written nothing behind it.
    """
    newest_first = sorted(ssts, key=lambda sst: sst.id, reverse=True)
    l0 = (*map(SstView.identity, newest_first), *manifest.tree.l0)
    loaded = replace(
        manifest,
        tree=replace(manifest.tree, l0=l0),
        replay_after_wal_id=WalId(max(manifest.replay_after_wal_id, last_wal_id)),
    )
    return with_wal_frontier(_with_commit(loaded, stamp), last_wal_id)


def _with_commit(manifest: Manifest, stamp: LoadStamp) -> Manifest:
    assert stamp.seq > manifest.last_l0_seq, "a load is newer than everything that was there"
    assert stamp.create_ts >= manifest.last_l0_clock_tick, "the database's clock does not go back"
    tracker = SequenceTracker.decode(manifest.sequence_tracker)
    tracker.record(stamp.seq, stamp.create_ts // 1000)
    return replace(
        manifest,
        last_l0_seq=Seq(stamp.seq),
        last_l0_clock_tick=stamp.create_ts,
        recent_snapshot_min_seq=Seq(stamp.seq),
        sequence_tracker=tracker.encode(),
    )


def shown(key: bytes) -> str:
    """A key for a message: as text if it is printable, and never at length."""
    text = repr(key[:_SHOWN_BYTES])[1:]
    return text if len(key) <= _SHOWN_BYTES else f"{text}… ({len(key)} bytes)"
