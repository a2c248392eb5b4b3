"""The rows of one WAL file (docs/reference/format.md 13)."""

from functools import partial

import numpy as np

from shale.engine.memtable.row_order import take_rows
from shale.env import Env
from shale.errors import CorruptionError
from shale.format.blocks.decoder import decode_blocks
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.info import decode_trailer
from shale.format.sst.wal_index import decode_wal_index
from shale.kernels.rows import EMPTY_ROWS, Rows
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

EMPTY_FILE_BYTES_MAX = 10
"""Files of at most this size have no rows: Shale writes fences of 0 bytes; SlateDB accepts up to 10."""

_INLINE_BYTES_MAX = 64 * 1024
log = get_logger("wal")


async def decode_wal_file(
    data: memoryview, path: str, env: Env, *, transformer: BlockTransformer | None = None
) -> Rows:
    """Return all rows by ascending seq, and by key within a commit; none for a fence.

    Raises:
        CorruptionError: the bytes are not a WAL file; names the object and the offset.
    """
    if len(data) <= EMPTY_FILE_BYTES_MAX:
        if len(data):
            log.warning(Event.SEQUENCED_LIST_UNKNOWN_FILE, object=path, bytes=len(data))
        return EMPTY_ROWS
    decode = partial(_decode, data, path, transformer)
    return decode() if len(data) <= _INLINE_BYTES_MAX else await env.cpu.run(decode)


def _decode(data: memoryview, path: str, transformer: BlockTransformer | None) -> Rows:
    try:
        info, version = decode_trailer(data, object_size=len(data), path=path)
        index = decode_wal_index(data, info, path, transformer)
        rows = decode_blocks(
            data[: info.data_len],
            index.offsets,
            version=version,
            compression=info.compression,
            path=path,
            transformer=transformer,
        )
    except CorruptionError as error:
        raise error.at(path) from None
    if len(rows) > 1 and bool(np.any(rows.seq[1:] < rows.seq[:-1])):
        # Files of old releases are in key order.
        rows = take_rows(rows, np.argsort(rows.seq, kind="stable"))
    return rows
