"""Draws a database as a text tree, newest data first, in the order of reads."""

from collections.abc import Iterator, Sequence

from shale.admin.json_values import rfc3339
from shale.core.units import format_age, format_size
from shale.types import SortedRun, SstView, Tree
from shale.types.writer_sign import WriterPresence, WriterStatus, writer_status
from shale_cli.commands.db.info import DbInfo, sst_bytes
from shale_cli.framework.output.writer import Output

BAR_WIDTH = 20
_L0_SHOWN_MAX = 12
"""A database whose compaction lags has hundreds of L0s."""


def render_tree(shape: DbInfo, output: Output) -> Iterator[str]:
    """Yield the lines of the tree."""
    manifest = shape.manifest
    yield shape.url
    changed = "" if shape.manifest_ms is None else f", {format_age(shape.now_ms - shape.manifest_ms)} old"
    state = "" if manifest.initialized else "  NOT INITIALIZED: an incomplete clone"
    epochs = f"writer epoch {manifest.writer_epoch}  compactor epoch {manifest.compactor_epoch}"
    yield f"manifest {shape.manifest_id}{changed}  {epochs}{state}"
    yield f"writer {_writer(writer_status(manifest, shape.now_ms), shape.now_ms)}"
    unflushed = shape.wal_last_id - manifest.replay_after_wal_id
    in_wal = f"{_count(unflushed, 'file')}, {format_size(shape.wal_bytes)}"
    yield f"seq {manifest.last_l0_seq} in L0; in the WAL only: {in_wal}"
    yield f"{_count(len(manifest.ssts()), 'SST')}, {format_size(sst_bytes(manifest))}"
    largest = max((each for _, tree in manifest.trees() for each in _sizes(tree)), default=0)
    for prefix, tree in manifest.trees():
        if prefix or not tree.is_empty or not manifest.segments:
            yield ""
            yield f"segment {output.show(prefix)}" if prefix else "tree"
            yield from _tree(tree, largest)
    yield from _below(shape)


def _writer(status: WriterStatus, now_ms: int) -> str:
    identity = status.identity
    if identity is None or status.seen_s is None:
        return "never opened" if status.presence is WriterPresence.NONE else "unknown: closed, or without a checkpoint"
    where = f" at {identity.endpoint}" if identity.endpoint else ""
    since, age = rfc3339(identity.since_s * 1000), format_age(max(0, now_ms - status.seen_s * 1000))
    silent = "" if status.presence is WriterPresence.SIGNED else ", SILENT"
    return f"on {identity.host or 'an unknown host'}{where} since {since}, seen {age} ago{silent}"


def _tree(tree: Tree, largest: int) -> Iterator[str]:
    rows: list[tuple[str, str, int]] = []
    shown = tree.l0[:_L0_SHOWN_MAX]
    rows += [(f"L0 {view.id}", _cut((view,)), _bytes(view)) for view in shown]
    if len(tree.l0) > len(shown):
        rest = tree.l0[len(shown) :]
        rows.append((f"L0 and {len(rest)} older", _cut(rest), sum(map(_bytes, rest))))
    rows += [(f"SR {run.id}", f"{_count(len(run.ssts), 'SST')}{_cut(run.ssts)}", _bytes(run)) for run in tree.compacted]
    if not rows:
        yield "└─ empty"
    names = max((len(name) for name, _, _ in rows), default=0)
    notes = max((len(note) for _, note, _ in rows), default=0)
    for number, (name, note, bytes_) in enumerate(rows, 1):
        branch = "└─" if number == len(rows) else "├─"
        bar = "█" * max(1, round(BAR_WIDTH * bytes_ / largest)) if largest else ""
        yield f"{branch} {name:{names}}  {note:{notes}}  {format_size(bytes_):>10}  {bar}".rstrip()


def _below(shape: DbInfo) -> Iterator[str]:
    manifest = shape.manifest
    if shape.compactions is not None and shape.compactions.entries:
        yield ""
        yield "compactions"
        for entry in shape.compactions.entries:
            yield f"  {entry.id}  {entry.status.name.lower()}"
    if manifest.checkpoints:
        yield ""
        yield "checkpoints"
    for checkpoint in manifest.checkpoints:
        expires = f"expires {rfc3339(checkpoint.expire_s * 1000)}" if checkpoint.expire_s else "never expires"
        expired = "  EXPIRED" if checkpoint.is_expired(shape.now_ms) else ""
        name = f"  {checkpoint.name}" if checkpoint.name is not None else ""
        yield f"  {checkpoint.id}  manifest {checkpoint.manifest_id}  {expires}{expired}{name}"
    if manifest.external_dbs:
        yield ""
        yield "external databases"
    for external in manifest.external_dbs:
        yield f"  {external.path}  {_count(len(external.sst_ids), 'SST')}  checkpoint {external.final_checkpoint_id}"


def _sizes(tree: Tree) -> list[int]:
    return [*map(_bytes, tree.l0), *map(_bytes, tree.compacted)]


def _bytes(part: SstView | SortedRun) -> int:
    return part.sst.estimated_size_bytes if isinstance(part, SstView) else part.estimated_size_bytes


def _cut(views: Sequence[SstView]) -> str:
    return " (cut)" if any(view.visible_range is not None for view in views) else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number:,} {what}s"
