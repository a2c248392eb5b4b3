"""One WAL file: the container of an SST with rows in commit order (docs/reference/format.md 13)."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError
from shale.format.blocks.checksums import damaged_blocks
from shale.format.blocks.decoder import decode_blocks, open_blocks
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.index import BlockIndex
from shale.format.sst.info import TRAILER_SIZE, decode_trailer
from shale.format.sst.wal_index import decode_wal_index
from shale.kernels.rows import I64, Rows
from shale.sst.verify.codes import Code
from shale.sst.verify.finding import Finding
from shale.sst.verify.layout import check_layout
from shale.sst.verify.order import first_unordered_row
from shale.sst.verify.restarts import walk_blocks
from shale.types import SstInfo, SstType

_EMPTY_BYTES_MAX = 10


@dataclass(frozen=True, slots=True)
class WalFileVerification:
    """The findings of one WAL file.

    ``first_seq`` and ``last_seq`` are 0 if there are no rows, or none that can be read; without decoded rows both are
    the first number.  ``is_undecodable``: see ``SstVerification``.
    """

    findings: tuple[Finding, ...]
    rows: int = 0
    first_seq: int = 0
    last_seq: int = 0
    is_undecodable: bool = False


def verify_wal_file(
    data: memoryview, path: str, transformer: BlockTransformer | None = None, *, decode_rows: bool = True
) -> WalFileVerification:
    """Check everything about one WAL file that can be checked without another object.  A fence is sound.

    Without ``decode_rows`` only footer, index and checksums are checked.
    """
    if len(data) <= _EMPTY_BYTES_MAX:
        what = f"it has {len(data)} bytes: too many for a fence, too few for rows"
        return WalFileVerification((Finding(path, what, None, Code.OBJECT_SIZE),) if len(data) else ())
    try:
        info, version = decode_trailer(data, object_size=len(data), path=path)
    except CorruptionError as error:
        return WalFileVerification((Finding.of(error, path),))
    try:
        if not decode_rows:
            first_seq = _first_seq(info)
            findings = tuple(_check_checksums(data, path, transformer, info))
            return WalFileVerification(findings, first_seq=first_seq, last_seq=first_seq)
        return _verify(data, path, transformer, info, version)
    except CorruptionError as error:
        found = Finding.of(error, path)
        return WalFileVerification((found,), is_undecodable=found.code is Code.UNDECODABLE)


def _verify(
    data: memoryview, path: str, transformer: BlockTransformer | None, info: SstInfo, version: int
) -> WalFileVerification:
    findings, index = _check_sections(data, path, transformer, info)
    blocks = data[: info.data_len]
    how = {"version": version, "compression": info.compression, "path": path, "transformer": transformer}
    rows = decode_blocks(blocks, index.offsets, **how)  # type: ignore[arg-type]
    walk = walk_blocks(open_blocks(blocks, index.offsets, **how))  # type: ignore[arg-type]
    findings += [Finding(path, what, int(index.offsets[block]), Code.ROW_OFFSETS) for block, what in walk.problems]
    starts = np.concatenate(([0], np.cumsum(walk.rows)[:-1]))
    findings += _check_order(rows, info, path)
    if info.sst_type is SstType.WAL:
        findings += _check_index(rows, starts, index, path)
    return WalFileVerification(tuple(findings), len(rows), int(rows.seq.min()), int(rows.seq.max()))


def _first_seq(info: SstInfo) -> int:
    """Return the first sequence number that the footer tells; 0 if it tells none, as in files of old releases."""
    first = info.first_entry
    return int.from_bytes(first, "big") if info.sst_type is SstType.WAL and first is not None and len(first) == 8 else 0


def _check_sections(
    data: memoryview, path: str, transformer: BlockTransformer | None, info: SstInfo
) -> tuple[list[Finding], BlockIndex]:
    findings = list(check_layout(info, footer_offset=int.from_bytes(data[-TRAILER_SIZE:-2], "big"), path=path))
    return findings, decode_wal_index(data, info, path, transformer)


def _check_checksums(
    data: memoryview, path: str, transformer: BlockTransformer | None, info: SstInfo
) -> Iterator[Finding]:
    findings, index = _check_sections(data, path, transformer, info)
    yield from findings
    for number in damaged_blocks(data[: info.data_len], index.offsets, path):
        yield Finding(path, "checksum mismatch", int(index.offsets[number]), Code.CHECKSUM)


def _check_order(rows: Rows, info: SstInfo, path: str) -> list[Finding]:
    """Check the order by seq, then key; files of old releases are by key, then newest first."""
    if info.sst_type is not SstType.WAL:
        place = first_unordered_row(rows)
        what = f"row {place} does not follow the one before"
        return [] if place is None else [Finding(path, what, None, Code.ROW_ORDER)]
    found = []
    if info.first_entry != int(rows.seq[0]).to_bytes(8, "big"):
        what = f"its footer names {info.first_entry!r}, its first row has seq {rows.seq[0]}"
        found.append(Finding(path, what, None, Code.KEY_RANGE))
    back = np.flatnonzero(rows.seq[1:] < rows.seq[:-1])
    if len(back):
        place = int(back[0]) + 1
        what = f"seq {rows.seq[place]} of row {place} follows seq {rows.seq[place - 1]}"
        found.append(Finding(path, what, None, Code.ROW_ORDER))
        return found
    # Keys ascend strictly within a commit; the next commit may begin with any key.
    ends = np.flatnonzero(rows.seq[1:] != rows.seq[:-1]) + 1
    bounds = [0, *ends.tolist(), len(rows)]
    for start, end in pairwise(bounds):
        inside = first_unordered_row(rows.slice(start, end)) if end - start > 1 else None
        if inside is not None:
            what = f"row {start + inside} does not follow the one before in commit {rows.seq[start]}"
            found.append(Finding(path, what, None, Code.ROW_ORDER))
            break
    return found


def _check_index(rows: Rows, starts: I64, index: BlockIndex, path: str) -> list[Finding]:
    """Check that each entry is the sequence number of its block's first row."""
    return [
        Finding(
            path,
            f"the index has {key!r} for a block that begins with seq {rows.seq[start]}",
            int(offset),
            Code.SEPARATOR,
        )
        for start, offset, key in zip(starts.tolist(), index.offsets[:-1], index.first_keys(), strict=True)
        if key != int(rows.seq[start]).to_bytes(8, "big")
    ]
