"""SSTs whose parts are all in memory, for tests of kernels that read cached blocks."""

from shale.kernels.rows import rows_from_entries
from shale.sst.access_counts import AccessCounts
from shale.sst.builder import build_sst
from shale.sst.meta import decode_meta, meta_span
from shale.sst.options import SstOptions
from shale.sst.slot import SstSlot
from shale.types import Entry, Sst, SstView, Ulid


class Slots:
    """SSTs that are wholly in memory."""

    def __init__(self) -> None:
        self.counts = AccessCounts()
        self._slots: dict[Ulid, SstSlot] = {}

    def add(self, rows: list[Entry], *, block_size_bytes: int = 512, with_filter: bool = True) -> SstView:
        options = SstOptions(block_size_bytes=block_size_bytes, min_filter_keys=0 if with_filter else 10_000)
        data, info = build_sst(rows_from_entries(rows), options)
        sst = Sst(id=Ulid(len(self._slots) + 1), info=info)
        start, end = meta_span(info, "x")
        meta = decode_meta(info, memoryview(data)[start:end], start, extractors=[], path="x")
        slot = self._slots[sst.id] = SstSlot(sst, "x")
        slot.load(meta)
        offsets = meta.index.offsets.tolist()
        for block in range(len(meta.index)):
            slot.put_image(block, data[offsets[block] : offsets[block + 1] - 4])
        return SstView.identity(sst)

    def slot(self, sst: Sst) -> SstSlot:
        return self._slots[sst.id]
