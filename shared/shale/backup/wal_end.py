"""Finds the end of the WAL for a restore to a sequence number."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Protocol

import numpy as np

from shale.backup.document import BackupObject
from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.engine.wal.file import decode_wal_file
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.format.blocks.transform import BlockTransformer
from shale.kernels.rows import Rows
from shale.sst.wal_builder import build_wal_sst
from shale.types import Compression, Manifest

ReadCopy = Callable[[BackupObject], Awaitable[memoryview]]


class Decoding(Protocol):
    """What decodes, encodes, decrypts and encrypts WAL files."""

    @property
    def env(self) -> Env:
        """Runs the work in threads."""
        ...

    @property
    def transformer(self) -> BlockTransformer | None:
        """Decrypts and encrypts sections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WalEnd:
    """The WAL files to restore, by number.

    ``last_data``: the bytes of the last one, if only some of its rows are restored.  ``last_seq``: the newest sequence
    number, if the files were read.
    """

    files: Mapping[int, BackupObject] = field(default_factory=dict)
    last_data: bytes | None = None
    last_seq: int | None = None

    @property
    def count(self) -> int:
        """The number of files."""
        return len(self.files)

    def cut_data(self, number: int) -> bytes | None:
        """Return the bytes of a file that is cut; ``None``: it is a copy as it is."""
        return self.last_data if number == max(self.files) else None


async def wal_until(
    files: Mapping[int, BackupObject],
    read: ReadCopy,
    manifest: Manifest,
    to_seq: int,
    target: Decoding,
) -> WalEnd:
    """Return the files with the rows up to a sequence number; the last one is cut after it.

    Args:
        files: the files that are kept, by ascending number without a gap.
        read: reads a copy.
        manifest: that of the backup; its SSTs hold the rows up to ``last_l0_seq``.
        to_seq: the last sequence number to restore.
        target: decodes and encodes files.

    Raises:
        InvalidRequestError: the SSTs have later rows, or the files end before.
        CorruptionError: a file cannot be decoded.
    """
    last_seq = int(manifest.last_l0_seq)
    if to_seq < last_seq:
        raise InvalidRequestError(
            f"the SSTs of the backup have rows up to sequence number {last_seq}, which is after {to_seq}: choose an "
            "older backup"
        )
    taken: dict[int, BackupObject] = {}
    for number, found in files.items():
        if last_seq == to_seq:
            break
        rows = await decode_wal_file(await read(found), found.key, target.env, transformer=target.transformer)
        count = int(np.searchsorted(rows.seq, to_seq, "right"))
        if count < len(rows):
            data = await _cut(rows, count, target) if count else None
            if data is None:
                return WalEnd(files=taken, last_seq=last_seq)
            return WalEnd(files={**taken, number: found}, last_data=data, last_seq=int(rows.seq[count - 1]))
        taken[number] = found
        last_seq = max(last_seq, int(rows.seq[-1])) if count else last_seq
    if last_seq < to_seq:
        raise InvalidRequestError(
            f"the WAL files in the backups end at sequence number {last_seq}, before {to_seq}: keep WAL files longer "
            "(wal_options.min_age of the gc), or make backups more often"
        )
    return WalEnd(files=taken, last_seq=last_seq)


async def same_rows(first: memoryview, second: BytesLike, path: str, target: Decoding) -> bool:
    """Return whether two WAL files have the same rows, whatever their encryption.

    Raises:
        CorruptionError: one of them cannot be decoded.
    """
    images = []
    for data in (first, memoryview(second)):
        rows = await decode_wal_file(data, path, target.env, transformer=target.transformer)
        images.append(build_wal_sst(rows, Compression.NONE, None) if len(rows) else b"")
    return images[0] == images[1]


async def _cut(rows: Rows, count: int, target: Decoding) -> bytes:
    return await target.env.cpu.run(lambda: build_wal_sst(rows.slice(0, count), Compression.NONE, target.transformer))
