"""A whole database in a folder, decoded by the codecs without store and engine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shale.format.blocks.plain import decode_block_plain
from shale.format.boundary import decode_boundary, encode_boundary
from shale.format.compactions import decode_compactions, encode_compactions
from shale.format.manifest import decode_manifest, encode_manifest
from shale.format.names import (
    compacted_prefix,
    parse_compactions_key,
    parse_manifest_key,
    parse_sst_key,
    parse_wal_key,
)
from shale.format.sequence_tracker import SequenceTracker
from shale.format.sst.index import decode_index, encode_index
from shale.format.sst.info import encode_trailer
from shale.format.sst.stats import decode_stats, encode_stats
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE, Compactions, Entry, Manifest, Row, SstType, SstView, Ulid
from tests.interop.sst_sections import Opened, open_sst

Fold = Callable[[bytes | None, list[bytes]], bytes]


def concatenate(existing: bytes | None, operands: list[bytes]) -> bytes:
    """Fold as the merge operator of the fixtures does."""
    return b"".join([existing or b"", *operands])


@dataclass(frozen=True)
class DatabaseFiles:
    """The folder of a store and the root of a database in it; ``wal_store`` is set if the WAL is in another store."""

    store: Path
    root: str
    wal_store: Path | None = None
    _ssts: dict[Ulid, Opened] = field(default_factory=dict)

    def manifests(self) -> dict[int, bytes]:
        """Return all versions by id."""
        return self._listed("manifest", lambda key: parse_manifest_key(self.root, key))

    def compactions(self) -> dict[int, bytes]:
        """Return all versions by id."""
        return self._listed("compactions", lambda key: parse_compactions_key(self.root, key))

    def latest(self) -> Manifest:
        """Return the current manifest."""
        return decode_manifest(max(self.manifests().items())[1])

    def decoded_compactions(self) -> dict[int, Compactions]:
        """Return all versions by id."""
        return {id_: decode_compactions(data) for id_, data in self.compactions().items()}

    def wal_files(self) -> dict[int, bytes]:
        """Return all WAL files by id; fences are empty."""
        store = self.wal_store or self.store
        return self._listed("wal", lambda key: parse_wal_key(self.root, key), store)

    def wal_entries(self, id_: int) -> list[Entry]:
        """Return the rows of one WAL file in its order."""
        data = self.wal_files()[id_]
        return list(entries_of(open_sst(data, f"wal/{id_}"))) if data else []

    def compacted(self) -> dict[int, bytes]:
        """Return all L0 and sorted-run SSTs below the root by ULID."""
        return self._listed("compacted", lambda key: parse_sst_key(self.root, key))

    def sst(self, manifest: Manifest, id_: Ulid) -> Opened:
        """Return one SST from the location in the manifest."""
        if id_ not in self._ssts:
            owner = next((db.path for db in manifest.external_dbs if id_ in db.sst_ids), self.root)
            path = self.store / f"{compacted_prefix(owner)}{id_}.sst"
            self._ssts[id_] = open_sst(path.read_bytes(), str(path))
        return self._ssts[id_]

    def rows(self, fold: Fold = concatenate) -> list[Row]:
        """Return the rows of a scan: a simple merge of all SSTs of the latest manifest and of the WAL after it."""
        manifest = self.latest()
        versions: dict[bytes, list[Entry]] = {}
        entries = [entry for view in manifest.views() for entry in self._view_entries(manifest, view)]
        assert all(entry.seq <= manifest.last_l0_seq for entry in entries)
        for id_ in sorted(self.wal_files()):
            if id_ > manifest.replay_after_wal_id:
                entries += [entry for entry in self.wal_entries(id_) if entry.seq > manifest.last_l0_seq]
        for entry in entries:
            versions.setdefault(entry.key, []).append(entry)
        return [row for key in sorted(versions) if (row := _visible(versions[key], fold)) is not None]

    def _view_entries(self, manifest: Manifest, view: SstView) -> Iterator[Entry]:
        shown = view.effective_range
        opened = self.sst(manifest, view.sst.id)
        assert (opened.info, opened.version) == (view.sst.info, view.sst.format_version)
        return (entry for entry in entries_of(opened) if shown.contains(entry.key))

    def _listed(self, folder: str, parse: Callable[[str], int | None], store: Path | None = None) -> dict[int, bytes]:
        store = store or self.store
        found = {}
        for path in sorted((store / self.root / folder).glob("*")):
            id_ = parse(str(path.relative_to(store)))
            assert id_ is not None, f"{path} has a name we do not know"
            found[id_] = path.read_bytes()
        return found


def entries_of(sst: Opened) -> Iterator[Entry]:
    """Return all rows of an SST in its order."""
    for block in sst.blocks():
        yield from decode_block_plain(block, sst.version)


def check_bytes(files: DatabaseFiles) -> int:
    """Encode every object with one valid encoding again, and return how many encodings were equal.

    Filters need the policies; see ``test_sst_sections``.
    """
    pieces = 0

    def same(ours: bytes, theirs: bytes, what: object) -> None:
        nonlocal pieces
        assert ours == theirs, f"{what} is written differently"
        pieces += 1

    for id_, data in files.manifests().items():
        manifest = decode_manifest(data)
        same(encode_manifest(manifest), data, f"manifest {id_}")
        tracker = manifest.sequence_tracker
        same(SequenceTracker.decode(tracker).encode(), tracker, f"tracker of manifest {id_}")
    for id_, data in files.compactions().items():
        same(encode_compactions(decode_compactions(data)), data, f"compactions {id_}")
    for path in (files.store / files.root / "gc").glob("*.boundary"):
        same(encode_boundary(decode_boundary(path.read_bytes())), path.read_bytes(), path)
    for sst_id, data in [*files.wal_files().items(), *files.compacted().items()]:
        if not data:
            continue
        sst = open_sst(data, str(sst_id))
        info = sst.info
        same(encode_trailer(info, offset=sst.footer_offset, version=sst.version), data[sst.footer_offset :], sst_id)
        index = sst.section(info.index_offset, info.index_len)
        same(encode_index(decode_index(index, data_len=info.data_len)), index, f"index of {sst_id}")
        if info.sst_type is SstType.COMPACTED:
            stats = sst.section(info.stats_offset, info.stats_len)
            same(encode_stats(decode_stats(stats)), stats, f"stats of {sst_id}")
    return pieces


def _visible(versions: list[Entry], fold: Fold) -> Row | None:
    versions = sorted(versions, key=lambda entry: -entry.seq)
    operands: list[Entry] = []
    base: Entry | None = None
    for entry in versions:
        if not entry.flags & FLAG_MERGE:
            base = entry
            break
        operands.append(entry)
    newest = versions[0]
    existing = base.value if base and not base.flags & FLAG_TOMBSTONE else None
    if operands:
        value = fold(existing, [entry.value for entry in reversed(operands)])
    elif existing is None:
        return None
    else:
        value = existing
    return Row(newest.key, value, newest.seq, newest.create_ts, newest.expire_ts or None)
