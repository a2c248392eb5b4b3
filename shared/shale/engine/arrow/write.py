"""``Db.write_arrow``: Arrow columns enter the memtable and the WAL without an object per row.

Source: docs/concepts/architecture.md, "The memtable".
"""

from collections.abc import Iterator, Sequence
from functools import partial

from shale.core.ttl import Lifetime
from shale.engine.arrow.rows import ArrowSource, KeyValueColumns, commit_rows, split_commits
from shale.engine.memtable.memtable import ROW_OVERHEAD_BYTES
from shale.engine.memtable.sorted_part import SortedPart, merge_parts, needs_merge
from shale.engine.options import DbOptions
from shale.engine.write.pipeline import WritePipeline
from shale.engine.write.write_handle import WriteHandle
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.kernels.rows import Rows


async def write_arrow(
    pipeline: WritePipeline, source: ArrowSource, *, lifetime: Lifetime, options: DbOptions, env: Env
) -> WriteHandle:
    """Write all rows and return the handle of the last commit; see ``Db.write_arrow``."""
    commits = split_commits(source)
    handle: WriteHandle | None = None
    while (rows := await env.cpu.run(partial(_next_rows, commits, options))) is not None:
        segments: Sequence[bytes] = ()
        if pipeline.route is not None:
            segments = await env.cpu.run(partial(pipeline.route.segments_of_columns, SortedPart(rows)))
        if needs_merge(pipeline.buffers.active.columns):
            await merge_parts(pipeline.buffers.active.columns, env.cpu)
        handle = await pipeline.write_columns(rows, lifetime, segments)
        if source.rows_per_commit is None:
            break  # one commit has all rows
    if handle is None:
        raise InvalidRequestError("write_arrow: there are no rows to write")
    return handle


def _next_rows(commits: Iterator[list[KeyValueColumns]], options: DbOptions) -> Rows | None:
    commit = next(commits, None)
    if commit is None:
        return None
    rows = commit_rows(commit, max_key_bytes=options.max_key_bytes)
    size_bytes = rows.size_bytes + len(rows) * ROW_OVERHEAD_BYTES
    if size_bytes > options.max_unflushed_bytes:
        raise InvalidRequestError(
            f"one commit of {size_bytes} bytes is more than max_unflushed_bytes, {options.max_unflushed_bytes}: "
            "give rows_per_commit"
        )
    return rows
