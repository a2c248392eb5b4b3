"""Read the changes of one ``FeedPart``."""

from collections.abc import AsyncGenerator
from enum import StrEnum

import numpy as np

from shale.engine.wal.feed.plan import FeedPart
from shale.engine.wal.replay import wal_rows
from shale.env import Env
from shale.errors import FeedGap
from shale.kernels.rows import Rows
from shale.protocol.wal_store import WalStore


class OnGap(StrEnum):
    """What a feed does if changes are missing."""

    FAIL = "fail"
    SKIP = "skip"


HOW_TO_GO_ON = 'begin again with start="earliest", or go on without them with on_gap="skip"'


async def read_part(
    wal: WalStore, part: FeedPart, env: Env, *, on_gap: OnGap = OnGap.FAIL
) -> AsyncGenerator[tuple[int, Rows], None]:
    """Yield the id and the changes of each file that has changes, by ascending seq, and by key within a commit.

    Raises:
        FeedGap: a file is missing.
        CorruptionError: a file is damaged, or does not begin above the last sequence number before it.
    """
    last_seq = 0 if part.is_inside else part.after_seq
    first_id = part.first_id
    while first_id <= part.last_id:
        missing_id: int | None = None
        async for wal_id, rows in wal_rows(wal, first_id, part.last_id, env, last_seq=last_seq):
            if rows is None:
                missing_id = wal_id
            elif len(rows):
                last_seq = int(rows.seq[-1])
                wanted = rows.slice(int(np.searchsorted(rows.seq, part.after_seq, "right")), len(rows))
                if len(wanted):
                    yield wal_id, wanted
        if missing_id is None:
            return
        if on_gap is OnGap.FAIL:
            raise FeedGap(f"the file is gone before it was read; {HOW_TO_GO_ON}", path=wal.key(missing_id))
        first_id = missing_id + 1
