"""``admin.encryption``: which keys the database needs, and the replacement of keys (docs/how-to/rotate-keys.md).

The name of its key is in clear text at the start of every object, so no key is needed to find it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import field
from functools import partial

from shale.admin.compactions import CompactionAdmin
from shale.admin.context import AdminContext
from shale.compaction.requests import Sources
from shale.compaction.status import CompactionInfo, Phase
from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.crypto.aes_gcm import AesGcm
from shale.crypto.key_names import NAME_BYTES_MAX, key_name_of
from shale.errors import InvalidCompaction, InvalidDbState, InvalidRequestError, ManifestMissing
from shale.format.blocks.transform import BlockTransformer
from shale.format.names import sst_key
from shale.protocol.wal_store import WalStore
from shale.types import Manifest, Sst, Tree, Ulid

_ATTEMPTS_MAX = 20
"""How often a rotation waits for other compactions of the same SSTs; a busy compactor may start new ones."""
UNENCRYPTED = ""
"""Stands for the name of a key."""


@dataclass(slots=True, kw_only=True)
class KeyUse:
    """What a key is needed for.

    Args:
        key: its name; ``UNENCRYPTED`` for objects without encryption.
        ssts, size: SSTs of the newest manifest, and their bytes.
        borrowed: those of ``ssts`` that belong to other databases, which must be compacted there or detached.
        checkpoints: names or ids of the checkpoints that keep other SSTs or WAL files of this key.
        wal_files: WAL files that replay or a checkpoint needs.
    """

    key: str
    ssts: int = 0
    size: int = 0
    borrowed: int = 0
    checkpoints: set[str] = field(default_factory=set)
    wal_files: int = 0

    @property
    def is_needed(self) -> bool:
        """Whether the database cannot be read without it."""
        return bool(self.ssts or self.checkpoints or self.wal_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionStatus:
    """The keys of a database.

    Args:
        write_key: the key of new objects, if the caller has the keys.
        uses: by name of the key; also keys that the caller has and the database does not need.
    """

    write_key: str | None
    uses: tuple[KeyUse, ...]

    @property
    def outdated(self) -> tuple[KeyUse, ...]:
        """The keys that are still needed, except the one of new objects."""
        return tuple(use for use in self.uses if use.is_needed and use.key != self.write_key)


OnJob = Callable[[CompactionInfo], None]


class EncryptionAdmin:
    """The keys of one database."""

    def __init__(self, place: AdminContext, compactions: CompactionAdmin, transformer: BlockTransformer | None) -> None:
        self._place, self._compactions, self._transformer = place, compactions, transformer
        self._names: dict[str, str] = {}

    async def status(self) -> EncryptionStatus:
        """Return which keys are needed, and what for.  Reads the first bytes of each SST and WAL file.

        Raises:
            LatestRecordMissing: there is no database.
            ManifestMissing: the manifest of a checkpoint is gone.
        """
        place = self._place
        latest = (await place.manifests.read_latest()).value
        uses: defaultdict[str, KeyUse] = defaultdict(lambda: KeyUse(key=UNENCRYPTED))
        borrowed = {sst_id for entry in latest.external_dbs for sst_id in entry.sst_ids}
        for sst_id, key in (await self._keys_of(latest)).items():
            use = uses[key]
            use.ssts += 1
            use.size += latest.ssts()[sst_id].estimated_size_bytes
            use.borrowed += sst_id in borrowed
        newest = latest.ssts().keys()
        replay_after = int(latest.replay_after_wal_id)
        kept: list[tuple[str, int, int]] = []
        now_ms = place.env.clock.now_ms()
        for checkpoint in latest.checkpoints:
            if checkpoint.is_expired(now_ms):
                continue
            manifest = await place.manifests.read(checkpoint.manifest_id)
            if manifest is None:
                raise ManifestMissing(checkpoint.manifest_id)
            name = checkpoint.name or str(checkpoint.id)
            kept.append((name, int(manifest.replay_after_wal_id), int(manifest.next_wal_sst_id)))
            for sst_id, key in (await self._keys_of(manifest)).items():
                if sst_id not in newest:
                    uses[key].checkpoints.add(name)
        for number, key in (await self._wal_keys(min([replay_after, *(after for _, after, _ in kept)]))).items():
            holders = {name for name, after, end in kept if after < number < end}
            uses[key].checkpoints.update(holders)
            uses[key].wal_files += bool(number > replay_after or holders)
        own = self._transformer if isinstance(self._transformer, AesGcm) else None
        for key in () if own is None else own.key_names:
            uses[key].key = key
        for key, use in uses.items():
            use.key = key
        return EncryptionStatus(
            write_key=None if own is None else own.write_key,
            uses=tuple(use for _, use in sorted(uses.items())),
        )

    async def rotate(
        self, *, wait: bool = True, dry_run: bool = False, on_progress: OnJob | None = None
    ) -> EncryptionStatus:
        """Rewrite all SSTs of the newest manifest that another key than the write key encrypts, by compactions.

        First give the new key as the first one to the writer, the compactor and its workers, and restart them.

        Args:
            wait: until the compactions have ended; without a running compactor they do not.
            dry_run: validate the compactions, and submit none.
            on_progress: called with the progress of each compaction.

        Returns:
            The keys that are needed afterwards.  Those of checkpoints and WAL files go when these go.

        Raises:
            InvalidRequestError: the caller has no keys.
            InvalidDbState: a compaction failed, or its worker does not write with the new key yet.
            InvalidCompaction: a compaction of the same SSTs is active, although others were waited for; or, without
                ``wait``, one is active.
        """
        if not isinstance(self._transformer, AesGcm):
            raise InvalidRequestError("a rotation needs the keys: set encryption.key_file, the new key first")
        write_key = self._transformer.write_key
        for _ in range(_ATTEMPTS_MAX):
            try:
                await self._rewrite(write_key, wait=wait, dry_run=dry_run, on_progress=on_progress)
                break
            except InvalidCompaction:
                if not wait or dry_run:
                    raise
            await self._wait_for_active(on_progress)
        else:
            await self._rewrite(write_key, wait=wait, dry_run=dry_run, on_progress=on_progress)
        return await self.status()

    async def _rewrite(self, write_key: str, *, wait: bool, dry_run: bool, on_progress: OnJob | None) -> None:
        """Submit a compaction for each tree with outdated SSTs, and wait for it."""
        latest = (await self._place.manifests.read_latest()).value
        keys = await self._keys_of(latest)
        for request in _requests(latest, {sst_id for sst_id, key in keys.items() if key != write_key}):
            for job in await self._compactions.submit(request, dry_run=dry_run):
                if not wait or dry_run:
                    continue
                done = await self._compactions.wait(job.id, on_progress)
                if done.phase is Phase.FAILED:
                    raise InvalidDbState(f"compaction {done.id} failed: {done.error}; run the rotation again")
                await self._require_written_with(write_key, done)

    async def _wait_for_active(self, on_progress: OnJob | None) -> None:
        """Wait for compactions of the coordinator, or of a rotation that was interrupted."""
        for job in await self._compactions.list():
            if not job.is_finished:
                await self._compactions.wait(job.id, on_progress)

    async def _require_written_with(self, write_key: str, done: CompactionInfo) -> None:
        outputs = {sst.id: sst for sst in done.outputs}
        found = set((await self._keys_at(outputs, {}, self._place.root)).values()) - {write_key}
        if found:
            raise InvalidDbState(
                f"compaction {done.id} wrote with {_shown(found)}, not with key {write_key}: make {write_key} the "
                "first key of the compactor and its workers, restart them, and run the rotation again"
            )

    async def _keys_of(self, manifest: Manifest) -> dict[Ulid, str]:
        """Return the name of the key of each SST."""
        borrowed = {sst_id: entry.path for entry in manifest.external_dbs for sst_id in entry.sst_ids}
        return await self._keys_at(manifest.ssts(), borrowed, self._place.root)

    async def _keys_at(self, ssts: dict[Ulid, Sst], borrowed: dict[Ulid, str], root: str) -> dict[Ulid, str]:
        sizes = {sst_key(borrowed.get(each.id, root), each.id): each.estimated_size_bytes for each in ssts.values()}
        unknown = [(key, size) for key, size in sizes.items() if key not in self._names]
        store = self._place.stores.main
        heads = await gather([partial(store.get_range, key, 0, min(size, NAME_BYTES_MAX)) for key, size in unknown])
        for (key, _), head in zip(unknown, heads, strict=True):
            if head is not None:  # else GC has deleted it since, or it is lost, which `verify` reports
                self._names[key] = key_name_of(head) or UNENCRYPTED
        named = {each.id: self._names.get(sst_key(borrowed.get(each.id, root), each.id)) for each in ssts.values()}
        return {sst_id: key for sst_id, key in named.items() if key is not None}

    async def _wal_keys(self, after: int) -> dict[int, str]:
        """Return the name of the key of each WAL file with rows above ``after``."""
        place = self._place
        wal = WalStore(place.stores.wal or place.stores.main, place.root)
        files = [each for each in await wal.list() if each.id > after and not each.is_fence]
        heads = await gather([partial(wal.read_range, each.id, 0, min(each.size, NAME_BYTES_MAX)) for each in files])
        pairs = zip(files, heads, strict=True)
        return {int(each.id): key_name_of(head) or UNENCRYPTED for each, head in pairs if head is not None}


def _requests(manifest: Manifest, outdated: Collection[Ulid]) -> Iterator[Sources]:
    """Yield one compaction for each tree with outdated SSTs: all its runs, and its L0s if one of them is outdated."""
    for prefix, tree in manifest.trees():
        if any(view.sst.id in outdated for view in tree.views()):
            has_l0 = any(view.sst.id in outdated for view in tree.l0)
            yield _whole_tree(prefix, tree, with_l0=has_l0)


def _whole_tree(prefix: bytes, tree: Tree, *, with_l0: bool) -> Sources:
    return Sources(
        segment=prefix,
        l0_view_ids=tuple(view.id for view in tree.l0) if with_l0 else (),
        sorted_runs=tuple(run.id for run in tree.compacted),
    )


def _shown(keys: Collection[str]) -> str:
    return ", ".join(sorted(f"key {key}" if key else "no key" for key in keys))
