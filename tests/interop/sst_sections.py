"""Opens an SST section by section, for tests of the codecs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from shale.format.blocks.section import open_section
from shale.format.sst.filter import NO_FILTERS, Filters, decode_filters
from shale.format.sst.filter_policy import PrefixExtractor
from shale.format.sst.index import decode_index
from shale.format.sst.info import decode_trailer
from shale.kernels.rows import Rows
from shale.types import Entry, SstInfo


@dataclass(frozen=True)
class Opened:
    """An SST in memory with its footer."""

    data: bytes
    path: str
    info: SstInfo
    version: int
    footer_offset: int

    def section(self, offset: int, length: int) -> bytes:
        """Return the image of one section."""
        return bytes(open_section(self.data[offset : offset + length], self.info.compression, self.path, offset))

    def blocks(self) -> Iterator[bytes]:
        """Return the images of all data blocks."""
        index = decode_index(self.section(self.info.index_offset, self.info.index_len), data_len=self.info.data_len)
        for start, end in zip(index.offsets[:-1].tolist(), index.offsets[1:].tolist(), strict=True):
            yield self.section(start, end - start)

    def filters(self, extractors: Sequence[PrefixExtractor]) -> Filters:
        """Return the decoded filters; none if there is no filter block."""
        if not self.info.filter_len:
            return NO_FILTERS
        image = self.section(self.info.filter_offset, self.info.filter_len)
        return decode_filters(image, self.info.filter_format, extractors)


def open_sst(data: bytes, path: str) -> Opened:
    """Read the footer."""
    info, version = decode_trailer(data, object_size=len(data), path=path)
    return Opened(data, path, info, version, int.from_bytes(data[-10:-2], "big"))


def plain_rows(entries: Sequence[Entry]) -> Rows:
    """Return rows in columns, built row by row."""

    def column(values: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        return (
            np.frombuffer(b"".join(values), np.uint8),
            np.array(list(accumulate(map(len, values), initial=0)), np.int64),
        )

    key_bytes, key_offsets = column([entry.key for entry in entries])
    val_bytes, val_offsets = column([entry.value for entry in entries])
    return Rows(
        key_bytes=key_bytes,
        key_offsets=key_offsets,
        val_bytes=val_bytes,
        val_offsets=val_offsets,
        seq=np.array([entry.seq for entry in entries], np.uint64),
        flags=np.array([entry.flags for entry in entries], np.uint8),
        create_ts=np.array([entry.create_ts for entry in entries], np.int64),
        expire_ts=np.array([entry.expire_ts for entry in entries], np.int64),
    )
