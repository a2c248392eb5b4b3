"""``Db.write_arrow``: columns into the memtable and the WAL as they are (docs/architecture.md, "The memtable")."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from shale.engine.accept import Acceptor
from shale.engine.arrow_rows import ColumnPair, commits_of, rows_of
from shale.engine.column_parts import are_scattered, gather_parts
from shale.engine.lifetime import Lifetime
from shale.engine.memtable import ROW_OVERHEAD_BYTES
from shale.engine.options import DbOptions
from shale.engine.sorted_part import SortedPart
from shale.engine.write_handle import WriteHandle
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.kernels.rows import Rows


async def write_arrow(
    acceptor: Acceptor,
    source: Any,
    *,
    key: str,
    value: str,
    lifetime: Lifetime,
    rows_per_commit: int | None,
    options: DbOptions,
    env: Env,
) -> WriteHandle:
    """Write all rows and return the handle of the last commit; see ``Db.write_arrow``."""
    if rows_per_commit is not None and rows_per_commit < 1:
        raise InvalidRequestError(f"rows_per_commit: {rows_per_commit} is not positive")
    commits = commits_of(source, key=key, value=value, rows_per_commit=rows_per_commit)
    handle: WriteHandle | None = None
    while (rows := await env.cpu.run(partial(_next_rows, commits, options))) is not None:
        segments: Sequence[bytes] = ()
        if acceptor.route is not None:
            segments = await env.cpu.run(partial(acceptor.route.segments_of_columns, SortedPart(rows)))
        if are_scattered(acceptor.table.columns):
            await gather_parts(acceptor.table.columns, env.cpu)
        handle = await acceptor.write_columns(rows, lifetime, segments)
        if rows_per_commit is None:
            break  # that was all
    if handle is None:
        raise InvalidRequestError("there are no rows to write")
    return handle


def _next_rows(commits: Iterator[list[ColumnPair]], options: DbOptions) -> Rows | None:
    commit = next(commits, None)
    if commit is None:
        return None
    rows = rows_of(commit, max_key_bytes=options.max_key_bytes)
    size_bytes = rows.size_bytes + len(rows) * ROW_OVERHEAD_BYTES
    if size_bytes > options.max_unflushed_bytes:
        raise InvalidRequestError(
            f"one commit of {size_bytes} bytes is more than max_unflushed_bytes, {options.max_unflushed_bytes}: "
            "give rows_per_commit"
        )
    return rows
