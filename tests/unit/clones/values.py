"""Small databases: physical SSTs with rows, and manifests that reference them."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from shale.clones.clone_manifest import Source
from shale.types import (
    ExternalDb,
    KeyRange,
    Manifest,
    RunId,
    SortedRun,
    Sst,
    SstInfo,
    SstView,
    Tree,
    Ulid,
    excluded,
    included,
)


def ulid(ms: int) -> Ulid:
    return Ulid.from_parts(ms, 0)


def uuid(number: int) -> UUID:
    return UUID(int=number)


class Uuids:
    """Fresh ids, in order."""

    def __init__(self, first: int = 1000) -> None:
        self._next = first

    def __call__(self) -> UUID:
        self._next += 1
        return uuid(self._next)


def sst(ms: int, first: bytes | None, last: bytes | None, size: int = 100) -> Sst:
    return Sst(id=ulid(ms), info=SstInfo(first_entry=first, last_entry=last, index_offset=size))


def view(ms: int, first: bytes | None, last: bytes | None = None, visible: KeyRange | None = None) -> SstView:
    return SstView(id=ulid(ms), sst=sst(ms, first, last), visible_range=visible)


def run(run_id: int, *views: SstView) -> SortedRun:
    return SortedRun(id=RunId(run_id), ssts=views)


def tree(l0: Iterable[SstView] = (), runs: Iterable[SortedRun] = ()) -> Tree:
    return Tree(l0=tuple(l0), compacted=tuple(runs))


def keys(start: bytes | None, end: bytes | None) -> KeyRange:
    return KeyRange.half_open(start, end)


def closed(start: bytes, end: bytes) -> KeyRange:
    return KeyRange(included(start), included(end))


def after(start: bytes, end: bytes | None = None) -> KeyRange:
    return KeyRange(excluded(start), KeyRange.half_open(None, end).end)


def source(path: str, manifest: Manifest, *, checkpoint: int = 1, named: KeyRange | None = None) -> Source:
    return Source(path=path, checkpoint_id=uuid(checkpoint), manifest=manifest, named_range=named)


def visible(views: Sequence[SstView]) -> list[tuple[int, KeyRange | None]]:
    return [(entry.id.ms, entry.visible_range) for entry in views]


def external(path: str, final: int | None, *ms: int, source_id: int = 7) -> ExternalDb:
    return ExternalDb(
        path=path,
        source_checkpoint_id=uuid(source_id),
        final_checkpoint_id=None if final is None else uuid(final),
        sst_ids=tuple(ulid(each) for each in ms),
    )


Contents = Mapping[Ulid, Mapping[bytes, Sequence[int]]]
"""The rows of each SST: the seqs of every key."""


def versions(manifest: Manifest, contents: Contents, key: bytes) -> list[int]:
    """Return every version of a key in the order of precedence: L0s, then the runs."""
    found: list[int] = []
    for prefix, each in manifest.trees():
        if key.startswith(prefix):
            for shown in each.views():
                if shown.effective_range.contains(key):
                    found += contents[shown.sst.id].get(key, ())
    return found
