"""Read the first and last sequence number of a WAL file; of a large file, read only the end."""

from functools import partial

from shale.core.lazy_dataclass import dataclass
from shale.engine.wal.file import EMPTY_FILE_BYTES_MAX, decode_wal_file
from shale.env import Env
from shale.errors import CorruptionError, WalTruncated
from shale.format.blocks.decoder import decode_blocks
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.info import TailTooShort, decode_trailer
from shale.format.sst.wal_index import decode_wal_index
from shale.kernels.rows import I64
from shale.protocol.wal_store import WalStore
from shale.types import SstInfo, SstType

_TAIL_BYTES = 256 << 10
"""Smaller files are read whole.  Of larger ones this much is read from the end: last block, index and footer."""
_SEQ_BYTES = 8


@dataclass(frozen=True, slots=True)
class SeqSpan:
    """The sequence numbers of a file with rows."""

    first: int
    last: int


async def read_seq_span(wal: WalStore, wal_id: int, size: int, env: Env) -> SeqSpan | None:
    """Read the first and last sequence number of a file of ``size`` bytes; ``None`` if it holds no rows.

    Raises:
        WalTruncated: the file is missing.
        CorruptionError: the file is damaged.
    """
    if size <= EMPTY_FILE_BYTES_MAX:
        return None
    if size <= _TAIL_BYTES:
        return await _read_whole(wal, wal_id, env)
    start = size - _TAIL_BYTES
    while True:
        tail = await _read(wal, wal_id, start, size)
        try:
            return await env.cpu.run(partial(_span_of_tail, tail, size, wal.key(wal_id), wal.transformer))
        except TailTooShort as short:
            start = short.start  # nearer to the front each time: footer, index, last block
        except _InKeyOrder:
            return await _read_whole(wal, wal_id, env)
        except CorruptionError as error:
            raise error.at(wal.key(wal_id)) from None


class _InKeyOrder(Exception):
    """The rows are in key order, as in files of old releases; such a file does not end with its last seq."""


async def _read_whole(wal: WalStore, wal_id: int, env: Env) -> SeqSpan | None:
    data = await wal.read(wal_id)
    if data is None:
        raise WalTruncated(wal_id)
    rows = await decode_wal_file(data, wal.key(wal_id), env, transformer=wal.transformer)
    return SeqSpan(int(rows.seq[0]), int(rows.seq[-1])) if len(rows) else None


async def _read(wal: WalStore, wal_id: int, start: int, end: int) -> memoryview:
    data = await wal.read_range(wal_id, start, end)
    if data is None:
        raise WalTruncated(wal_id)
    return data


def _span_of_tail(tail: memoryview, size: int, path: str, transformer: BlockTransformer | None) -> SeqSpan:
    """Decode the span from the last bytes of a file.

    Raises:
        TailTooShort: the last block, the index or the footer begins before the tail.
    """
    start = size - len(tail)
    info, version = decode_trailer(tail, object_size=size, path=path)
    if info.sst_type is not SstType.WAL or info.first_entry is None or len(info.first_entry) != _SEQ_BYTES:
        raise _InKeyOrder
    offsets = _last_block(tail, start, info, path, transformer)
    rows = decode_blocks(
        tail[int(offsets[0]) - start : int(offsets[1]) - start],
        offsets,
        version=version,
        compression=info.compression,
        path=path,
        transformer=transformer,
    )
    return SeqSpan(int.from_bytes(info.first_entry, "big"), int(rows.seq.max()))


def _last_block(tail: memoryview, start: int, info: SstInfo, path: str, transformer: BlockTransformer | None) -> I64:
    """Return the start and end offset of the last block."""
    if info.index_offset < start:
        raise TailTooShort(info.index_offset)
    offsets = decode_wal_index(tail, info, path, transformer, start=start).offsets[-2:]
    if int(offsets[0]) < start:
        raise TailTooShort(int(offsets[0]))
    return offsets
