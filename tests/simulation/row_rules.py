"""The rule that no row is lost or duplicated, checked in the store after every manifest."""

from collections import defaultdict
from collections.abc import Iterable

from shale.format.blocks.decoder import decode_blocks
from shale.format.blocks.section import open_section
from shale.format.names import sst_key
from shale.format.sst.index import decode_index
from shale.kernels.rows import entries_from_rows
from shale.testing.mutation_log import Mutation
from shale.testing.sequenced_invariants import SequencedInvariants
from shale.testing.simulation import Simulation
from shale.types import FLAG_EXPIRE_TS, Entry, Manifest, Sst, SstView, Tree

Versions = dict[int, Entry]


class RowRules:
    """After every manifest, each row that was ever flushed is visible, overwritten or deleted, and exists once.

    Checked at the oldest snapshot and at the newest sequence number, tree by tree.  A drain takes rows away on
    purpose: it is known by a compactor's step that removes sources and puts nothing in their place.
    """

    def __init__(self, manifests: SequencedInvariants[Manifest]) -> None:
        """``manifests`` must decode every version before this rule checks it."""
        self._manifests = manifests
        self.latest_id = 0
        self.drained: set[bytes] = set()
        self._flushed: dict[bytes, dict[bytes, Versions]] = defaultdict(lambda: defaultdict(dict))
        self._l0s: set[int] = set()
        self._entries: dict[int, list[Entry]] = {}
        self._before = Manifest()

    def after(self, mutation: Mutation, sim: Simulation) -> None:
        """See ``Invariants``."""
        if self._manifests.latest_id == self.latest_id:
            return
        self.latest_id = self._manifests.latest_id
        manifest = self._manifests.latest
        for prefix, tree in manifest.trees():
            if mutation.role == "compactor" and self._is_drained(prefix, tree):
                self.drained.add(prefix)
                self._flushed[prefix] = self._shown(sim, tree.views())
            self._note_flushed(sim, prefix, tree)
        self._before = manifest
        self.check(sim, manifest, str(mutation))

    def check(self, sim: Simulation, manifest: Manifest, where: str = "") -> None:
        """Compare the rows of the trees, now and at the oldest snapshot, with the flushed rows."""
        moments = (manifest.recent_snapshot_min_seq, manifest.last_l0_seq)
        tick = manifest.last_l0_clock_tick
        for prefix, flushed in self._flushed.items():
            tree = manifest.tree_of(prefix) or Tree()
            shown = self._shown(sim, tree.views(), where)
            for key, versions in flushed.items():
                for at_seq in moments:
                    wanted, found = _visible(versions, at_seq, tick), _visible(shown.get(key, {}), at_seq, tick)
                    assert found == wanted, f"{where}: {key!r} at {at_seq} shows {found!r}, not {wanted!r}"
            assert shown.keys() <= flushed.keys(), f"{where}: keys that were never written"

    def entries_of(self, sim: Simulation, sst: Sst) -> list[Entry]:
        """The rows of an SST that exists."""
        if sst.id not in self._entries:
            self._entries[sst.id] = read_entries(sim, sst)
        return self._entries[sst.id]

    def rows_of(self, sim: Simulation, views: Iterable[SstView]) -> list[Entry]:
        """Return the rows that views show, in the order of the views."""
        return [
            entry
            for view in views
            for entry in self.entries_of(sim, view.sst)
            if view.visible_range is None or view.visible_range.contains(entry.key)
        ]

    def _shown(self, sim: Simulation, views: Iterable[SstView], where: str = "") -> dict[bytes, Versions]:
        shown: dict[bytes, Versions] = defaultdict(dict)
        for entry in self.rows_of(sim, views):
            versions = shown[entry.key]
            assert entry.seq not in versions, f"{where}: {entry} appears twice"
            versions[entry.seq] = entry
        return shown

    def _note_flushed(self, sim: Simulation, prefix: bytes, tree: Tree) -> None:
        for view in tree.l0:
            if view.id not in self._l0s:
                self._l0s.add(view.id)
                for entry in self.rows_of(sim, (view,)):
                    self._flushed[prefix][entry.key][entry.seq] = entry

    def _is_drained(self, prefix: bytes, now: Tree) -> bool:
        before = self._before.tree_of(prefix)
        if not prefix or before is None:
            return False
        old, new = {view.sst.id for view in before.views()}, {view.sst.id for view in now.views()}
        return new < old and {run.id for run in now.compacted} <= {run.id for run in before.compacted}


def read_entries(sim: Simulation, sst: Sst) -> list[Entry]:
    key = sst_key("db", sst.id)
    data = sim.memory.objects[key].data
    info = sst.info
    image = open_section(data[info.index_offset : info.index_offset + info.index_len], info.compression, key, 0)
    offsets = decode_index(image, data_len=info.data_len).offsets
    stored = data[: info.data_len]
    blocks = decode_blocks(stored, offsets, version=sst.format_version, compression=info.compression, path=key)
    return entries_from_rows(blocks)


def _visible(versions: Versions, at_seq: int, tick: int) -> bytes | None:
    """Return the rows of a reader at ``at_seq`` without those expired by ``tick``, with folded operands.

    Operands are concatenated, which is what the operator of these tests does too.
    """
    operands: list[bytes] = []
    for seq in sorted(versions, reverse=True):
        if seq > at_seq:
            continue
        entry = versions[seq]
        has_expired = bool(entry.flags & FLAG_EXPIRE_TS) and entry.expire_ts <= tick
        if entry.is_merge:
            if not has_expired:
                operands.append(entry.value)
            continue
        if not entry.is_tombstone and not has_expired:
            operands.append(entry.value)
            break
        return b"".join(reversed(operands)) if operands else None
    return b"".join(reversed(operands)) if operands else None
