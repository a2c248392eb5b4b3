"""The sizes of views that show only a part of their SST, for the policies.

A manifest has the size of whole SSTs.  After a database was split, a policy would take each half for as large as the
whole.  The index of an SST tells which blocks a view shows; it is read once for each such view, which are few: only
clones have them, until they are compacted.

Source: docs/reference/protocol.md 11.1.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from shale.compaction.policies.scheduler import CompactionScheduler
from shale.concurrency.gather import gather
from shale.errors import CorruptionError
from shale.format.blocks.section import open_section
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.image_limits import IMAGE_BYTES_USUAL
from shale.format.sst.index import decode_index
from shale.sst.paths import SstPaths
from shale.store.port import ObjectStore
from shale.types import Compactions, CompactionSpec, KeyRange, Manifest, Segment, SortedRun, SstView, Tree, Ulid

MEASURED_PER_ROUND = 64
"""Bounds the requests of one round; the next rounds measure the others."""
_Part = tuple[Ulid, KeyRange]


class ViewSizes:
    """Measured sizes of the cut views of one database.

    Args:
        store: the database's object store.
        root: its path.
        transformer: reverses the transformation of blocks, if they are encrypted.
    """

    def __init__(self, store: ObjectStore, root: str, transformer: BlockTransformer | None = None) -> None:
        self._store = store
        self._root = root
        self._transformer = transformer
        self._sizes: dict[_Part, int] = {}

    async def measure(self, manifest: Manifest) -> None:
        """Read the indexes of cut views that were not measured yet, and forget views that are gone."""
        cut = {part: view for view in manifest.views() if (part := _cut_part(view)) is not None}
        self._sizes = {part: size for part, size in self._sizes.items() if part in cut}
        missing = [view for part, view in cut.items() if part not in self._sizes][:MEASURED_PER_ROUND]
        if not missing:
            return
        paths = SstPaths.of(self._root, manifest)
        sizes = await gather([partial(self._size, view, paths.key(view.sst.id)) for view in missing])
        for view, size in zip(missing, sizes, strict=True):
            part = _cut_part(view)
            assert part is not None
            self._sizes[part] = size

    async def _size(self, view: SstView, key: str) -> int:
        """Return the bytes of the blocks that a view shows; if they cannot be told, the size of the whole SST."""
        info = view.sst.info
        stored = await self._store.get_range(key, info.index_offset, info.index_offset + info.index_len)
        if stored is None:
            return view.sst.estimated_size_bytes
        try:
            image = open_section(
                stored,
                info.compression,
                key,
                info.index_offset,
                transformer=self._transformer,
                image_max=IMAGE_BYTES_USUAL,
                kind="index",
            )
            index = decode_index(image, data_len=info.data_len, path=key, offset=info.index_offset)
        except CorruptionError:
            return view.sst.estimated_size_bytes  # A compaction of the SST reports it.
        first, last = index.block_range(view.effective_range)
        return max(1, int(index.offsets[last] - index.offsets[first]))

    def applied(self, manifest: Manifest) -> Manifest:
        """Return the manifest with measured sizes of cut views; only for policies, never to be written."""
        if not self._sizes:
            return manifest

        def sized(views: Iterable[SstView]) -> Iterator[SstView]:
            for view in views:
                part = _cut_part(view)
                size = None if part is None else self._sizes.get(part)
                yield view if size is None else _of_size(view, size)

        def tree(old: Tree) -> Tree:
            runs = tuple(SortedRun(id=run.id, ssts=tuple(sized(run.ssts))) for run in old.compacted)
            return replace(old, l0=tuple(sized(old.l0)), compacted=runs)

        return replace(
            manifest,
            tree=tree(manifest.tree),
            segments=tuple(Segment(prefix=each.prefix, tree=tree(each.tree)) for each in manifest.segments),
        )


class MeasuredScheduler:
    """A policy that sees measured sizes."""

    def __init__(self, scheduler: CompactionScheduler, applied: Callable[[Manifest], Manifest]) -> None:
        self._scheduler = scheduler
        self._applied = applied

    def plan(self, manifest: Manifest, compactions: Compactions) -> Iterable[CompactionSpec]:
        """See ``CompactionScheduler``."""
        return self._scheduler.plan(self._applied(manifest), compactions)


def _cut_part(view: SstView) -> _Part | None:
    """Return the SST and the range of a view that does not show all of its SST."""
    if view.visible_range is None:
        return None
    shown = view.effective_range
    return None if shown == view.sst.info.physical_range else (view.sst.id, shown)


def _of_size(view: SstView, size: int) -> SstView:
    return replace(view, sst=replace(view.sst, info=replace(view.sst.info, index_offset=size, index_len=0)))
