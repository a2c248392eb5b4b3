"""The manifest of a bulk load: SSTs that were built elsewhere become part of a database.

A load is one commit of a writer.  All its rows have one sequence number, above all others, and one creation time; no
key occurs twice.  In a new database its SSTs are one sorted run.  In an existing database each SST is an L0, because
runs are older than every L0 (docs/reference/protocol.md 4.8, 7.1).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from shale.core.lazy_dataclass import dataclass
from shale.engine.flush.planner import with_wal_frontier
from shale.errors import InvalidRequestError
from shale.format.sequence_tracker import SequenceTracker
from shale.types import Manifest, RunId, Seq, SortedRun, Sst, SstView, Tree, WalId

_FIRST_RUN = RunId(0)
_SHOWN_BYTES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStamp:
    """What all rows and SSTs of one load share.

    Args:
        seq: the sequence number of all rows.
        create_ts: time of the commit, in milliseconds.
        not_before_ms: no id of an SST has an earlier time: GC deletes SSTs older than the newest published L0
            (docs/reference/protocol.md 8.2).
        keeps_expired: rows that have expired become tombstones, since they hide older versions of their key; in a new
            database they are dropped.
    """

    seq: int
    create_ts: int
    not_before_ms: int
    keeps_expired: bool


def in_key_order(ssts: Iterable[Sst]) -> tuple[Sst, ...]:
    """Return the SSTs of a load by key.

    Raises:
        InvalidRequestError: two of them share a key; the message names it.
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
    """Return the first manifest of a database that holds the rows of one load, whose SSTs come by key.

    The epochs are 0 and the WAL is empty, as after a clean close.
    """
    if not ssts:
        return Manifest()
    run = SortedRun(id=_FIRST_RUN, ssts=tuple(map(SstView.identity, ssts)))
    return _with_commit(Manifest(tree=Tree(compacted=(run,))), stamp)


def append_load(manifest: Manifest, ssts: Iterable[Sst], stamp: LoadStamp, *, last_wal_id: int) -> Manifest:
    """Return the manifest of an existing database after a load.

    Args:
        manifest: the manifest before; its L0s hold every row of the WAL.
        ssts: the SSTs of the load.
        stamp: what their rows share.
        last_wal_id: the fence of the loading writer, which has written no WAL file after it.
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
    assert stamp.seq > manifest.last_l0_seq, "the seq of a load is above all others"
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
    """Return a key for a message: text if it is printable, cut if it is long."""
    text = repr(key[:_SHOWN_BYTES])[1:]
    return text if len(key) <= _SHOWN_BYTES else f"{text}… ({len(key)} bytes)"
