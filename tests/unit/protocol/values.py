"""Short builders for manifests."""

from shale.types import RunId, SortedRun, Sst, SstInfo, SstView, Tree, Ulid


def ulid(ms: int, chance: int = 0) -> Ulid:
    return Ulid.from_parts(ms, chance)


def view(ms: int, *, sst_ms: int | None = None) -> SstView:
    """Return a view with an id of that time; by default of an SST with the same id."""
    sst = Sst(id=ulid(ms if sst_ms is None else sst_ms), info=SstInfo(first_entry=b"a", last_entry=b"z"))
    return SstView(id=ulid(ms), sst=sst)


def run_of(run_id: int, *times_ms: int) -> SortedRun:
    return SortedRun(id=RunId(run_id), ssts=tuple(view(ms) for ms in times_ms))


def tree(l0: tuple[int, ...] = (), runs: tuple[SortedRun, ...] = (), watermark: int | None = None) -> Tree:
    """Return a tree; ``l0`` is newest first."""
    return Tree(
        l0=tuple(view(ms) for ms in l0),
        compacted=runs,
        last_compacted_l0_sst_view_id=None if watermark is None else ulid(watermark),
    )


def times(result: Tree) -> list[int]:
    return [entry.id.ms for entry in result.l0]
