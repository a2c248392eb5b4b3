"""Writes the SSTs and trees of a large manifest with a kernel, byte for byte as the generated code does.

The kernel reads a record for each view.  The records of a run are made once: as long as the run does not change, the
next version of the manifest reuses them, so that an update costs little more than what it changes.
"""

from collections.abc import Sequence
from itertools import chain
from struct import Struct

import numpy as np
from flatbuffers import Builder

from shale.core.lazy_dataclass import dataclass
from shale.format.flat.builder import append_image
from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled, use_kernels
from shale.kernels.layout import manifest as layout
from shale.kernels.rows import I64
from shale.types import Manifest, SstView, Tree

VIEWS_MIN = 64
"""Smaller manifests are written by the generated code."""
_RECORD = Struct("<4Q4Q2q2Q2q2qq")
_MASK64 = 2**64 - 1
_ALIGNMENT_MIN = 4
_U16 = Struct("<H")


@dataclass(frozen=True, slots=True)
class WrittenTrees:
    """Offsets of what was written, from the end of the buffer; 0 is absent."""

    ssts: int
    l0: int
    watermark: int
    compacted: int
    segments: int


@dataclass(frozen=True, slots=True)
class ViewRecords:
    """The records of the views in one tuple, and the keys that they refer to."""

    views: tuple[SstView, ...]
    records: bytes
    keys: bytes

    @classmethod
    def of(cls, views: tuple[SstView, ...]) -> "ViewRecords":
        """Make the records of an L0 list or a run."""
        keys = chain.from_iterable(
            (view.sst.info.first_entry or b"", view.sst.info.last_entry or b"") for view in views
        )
        return cls(views, b"".join(map(_record, views)), b"".join(keys))


class TreeWriter:
    """Writes the trees of one manifest after another, and remembers the records of the last one."""

    def __init__(self, views_min: int = VIEWS_MIN) -> None:
        self._views_min = views_min
        self._known: dict[int, ViewRecords] = {}

    def write(self, builder: Builder, manifest: Manifest) -> WrittenTrees | None:
        """Write SSTs, root tree and segments, first thing in a buffer.

        Returns:
            ``None`` if the generated code must write them: they are few, a view has a visible range, or there are no
            kernels.
        """
        trees = [tree for _, tree in manifest.trees()]
        groups = [group for tree in trees for group in (tree.l0, *(run.ssts for run in tree.compacted))]
        count = sum(map(len, groups))
        if count < self._views_min or not use_kernels():
            return None
        if any(view.visible_range is not None for group in groups for view in group):
            return None
        known = self._known
        records = [_known_records(known, group) for group in groups if group]
        # The records keep their tuples alive, so that no other tuple gets the same id.
        self._known = {id(each.views): each for each in records if len(each.views) > 1}
        return _write(builder, manifest, _Input(records, count, trees))


def _known_records(known: dict[int, ViewRecords], views: tuple[SstView, ...]) -> ViewRecords:
    found = known.get(id(views))
    return ViewRecords.of(views) if found is None else found


def _record(view: SstView) -> bytes:
    sst, view_id = view.sst, view.id
    sst_id, info = sst.id, sst.info
    first, last = info.first_entry, info.last_entry
    return _RECORD.pack(
        view_id >> 64,
        view_id & _MASK64,
        sst_id >> 64,
        sst_id & _MASK64,
        info.index_offset,
        info.index_len,
        info.filter_offset,
        info.filter_len,
        info.compression,
        info.sst_type,
        info.stats_offset,
        info.stats_len,
        info.filter_format,
        sst.format_version,
        -1 if first is None else len(first),
        -1 if last is None else len(last),
        0,
    )


class _Input:
    """What the kernel reads: records of views and trees, keys, and the order of the SSTs."""

    def __init__(self, records: Sequence[ViewRecords], count: int, trees: Sequence[Tree]) -> None:
        joined = bytearray().join([each.records for each in records])
        self.views: I64 = np.frombuffer(joined, np.int64).reshape(count, layout.VIEW_WORDS)
        sizes = np.maximum(self.views[:, layout.FIRST_LEN], 0) + np.maximum(self.views[:, layout.LAST_LEN], 0)
        self.views[:, layout.KEYS] = np.cumsum(sizes) - sizes
        self.keys = np.frombuffer(b"".join([each.keys for each in records]) or b"\0", np.uint8)
        self.order = _sst_order(self.views)
        self.trees = trees
        self.runs = sum(len(tree.compacted) for tree in trees)

    def tree_words(self, prefixes: Sequence[bytes]) -> I64:
        """Return the records of trees and runs."""
        words: list[int] = []
        for prefix, tree in zip(prefixes, self.trees, strict=True):
            watermark = tree.last_compacted_l0_sst_view_id
            high, low = (0, 0) if watermark is None else (watermark >> 64, watermark & _MASK64)
            words += (len(prefix), len(tree.l0), watermark is not None, high, low, len(tree.compacted))
            for run in tree.compacted:
                words += (run.id, len(run.ssts))
        return np.array(words, np.uint64).view(np.int64)


def _sst_order(views: I64) -> I64:
    """Return the numbers of the views whose SSTs are written: ascending by id, the last view of each SST."""
    high, low = (np.ascontiguousarray(views[:, word]).view(np.uint64) for word in (layout.SST_HIGH, layout.SST_LOW))
    order = np.lexsort((low, high))
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (high[order][1:] != high[order][:-1]) | (low[order][1:] != low[order][:-1])
    return order[is_last]


def _write(builder: Builder, manifest: Manifest, given: _Input) -> WrittenTrees | None:
    prefixes = [b"", *(segment.prefix for segment in manifest.segments)]
    names = np.frombuffer(b"".join(prefixes) or b"\0", np.uint8)
    count = len(given.views)
    size_max = (
        layout.VTABLES_BYTES_MAX
        + (count + 1) * layout.VIEW_BYTES_MAX
        + 2 * len(given.keys)
        + given.runs * layout.RUN_BYTES_MAX
        + len(prefixes) * layout.TREE_BYTES_MAX
        + len(names)
    )
    image = np.empty(size_max, np.uint8)
    scratch = np.empty(count + given.runs + len(prefixes), np.int64)
    trees = given.tree_words(prefixes)
    state = np.zeros(layout.STATE_WORDS, np.int64)
    state[layout.END] = address_of(image) + size_max
    state[layout.ALIGNMENT] = _ALIGNMENT_MIN
    state[layout.SCRATCH] = address_of(scratch)
    out = np.zeros(2 * layout.OUT_WORDS, np.int64)
    written = compiled.write_manifest(
        address_of(given.views),
        address_of(given.keys),
        address_of(given.order),
        len(given.order),
        address_of(trees),
        len(prefixes),
        address_of(names),
        address_of(state),
        address_of(out),
    )
    if not written:
        return None
    append_image(builder, image.data[size_max - written :], alignment=int(state[layout.ALIGNMENT]))
    for place in state[layout.VTABLES :][: state[layout.VTABLE_COUNT]].tolist():
        _register_vtable(builder, place)
    return WrittenTrees(*out[: layout.OUT_WORDS].tolist())


def _register_vtable(builder: Builder, place: int) -> None:
    """Let the tables that the builder writes later share a vtable of the image."""
    at = len(builder.Bytes) - place
    size, object_size = (_U16.unpack_from(builder.Bytes, at + entry)[0] for entry in (0, 2))
    fields = (_U16.unpack_from(builder.Bytes, at + entry)[0] for entry in range(size - 2, 2, -2))
    builder.vtables[(*fields, object_size)] = place
