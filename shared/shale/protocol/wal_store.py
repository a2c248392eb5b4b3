"""WAL files: create-if-absent in strict order, found by probing instead of listing.

Where several files are written at the same time (docs/reference/protocol.md 4.13), one may be missing before the last.

Source: docs/reference/protocol.md 4.2, 4.3; SlateDB slatedb/src/tablestore.rs.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial

from shale.concurrency.gather import gather
from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.errors import ONE_WRITER, AlreadyExists, FencedError, InvalidDbState, ProtocolPanic
from shale.format.blocks.transform import BlockTransformer
from shale.format.names import parse_wal_key, wal_key, wal_prefix
from shale.store.port import CREATE, ETag, ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import WalId

WRITER_EPOCH = "writerepoch"
"""Name of the metadata that holds the epoch of the writer of a WAL file, in decimal.

It has no underscore: the metadata of objects are HTTP headers, and proxies and gateways drop or rename headers with
underscores, after which the signature of the request is wrong.
"""

_PROBES_PER_ROUND = 8
_DOUBLINGS_MAX = 48
log = get_logger("wal")


@dataclass(frozen=True, slots=True)
class WalFile:
    """A WAL file as a listing shows it; one of zero bytes is a writer's fence."""

    id: WalId
    size: int
    last_modified_ms: int
    etag: ETag | None = None

    @property
    def is_fence(self) -> bool:
        """Whether it holds no rows."""
        return self.size == 0

    def is_same(self, other: "WalFile") -> bool:
        """Whether both describe the same file: by size, and by etag where the store has etags."""
        if (self.id, self.size) != (other.id, other.size):
            return False
        # On Google Cloud Storage a read adds the generation to the etag, a listing does not.
        etags = {each.etag.split("#")[0] for each in (self, other) if each.etag is not None}
        return len(etags) < 2


class WalStore:
    """The WAL of the database at ``root``, which may have a separate store.

    Args:
        store: the objects.
        root: the path of the database.
        transformer: used by encoders and decoders of the files.
        marks_epoch: whether files carry the epoch of their writer as metadata, where the store keeps metadata.
    """

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        *,
        transformer: BlockTransformer | None = None,
        marks_epoch: bool = True,
    ) -> None:
        self.transformer = transformer
        self._marks_epoch = marks_epoch
        self._store = store
        self._root = root

    def key(self, wal_id: int) -> str:
        """Return the key of a file."""
        return wal_key(self._root, wal_id)

    async def exists(self, wal_id: int) -> bool:
        """Return whether the file exists, also if it is a fence."""
        return await self._store.head(self.key(wal_id)) is not None

    async def size(self, wal_id: int) -> int | None:
        """Return the size of a file, 0 for a fence; ``None`` if it does not exist."""
        meta = await self._store.head(self.key(wal_id))
        return None if meta is None else meta.size

    async def modified_ms(self, wal_id: int) -> int | None:
        """Return when a file was written, by the store's clock; ``None`` if it does not exist."""
        meta = await self._store.head(self.key(wal_id))
        return None if meta is None else meta.last_modified_ms

    async def read_range(self, wal_id: int, start: int, end: int) -> memoryview | None:
        """Read the bytes ``[start, end)`` of a file; ``None`` if it does not exist."""
        return await self._store.get_range(self.key(wal_id), start, end)

    async def read(self, wal_id: int) -> memoryview | None:
        """Read a file, which is empty for a fence; ``None`` if it does not exist."""
        result = await self._store.get(self.key(wal_id))
        return None if result is None else result.data

    async def read_file(self, wal_id: int) -> tuple[WalFile, memoryview] | None:
        """Read a file and what the store knows of it; ``None`` if it does not exist."""
        result = await self._store.get(self.key(wal_id))
        if result is None:
            return None
        meta = result.meta
        return WalFile(WalId(wal_id), meta.size, meta.last_modified_ms, meta.etag), result.data

    async def put_or_raise_fenced(
        self, wal_id: int, data: BytesLike | Sequence[BytesLike], *, epoch: int | None = None
    ) -> None:
        """Write a file of the writer with ``epoch``, in one piece or in parts, in one request.

        Raises:
            FencedError: the slot is taken, so another writer is ahead.  A repeated request that meets its own file
                succeeds: the store's retry layer recognizes it (``store.retry``).
            ProtocolPanic: the file in the slot has the same epoch, which only one writer may have.
        """
        assert len(data), "an empty WAL file is a fence"
        try:
            await self._store.put(self.key(wal_id), data, mode=CREATE, attributes=self._attributes(epoch))
        except AlreadyExists as error:
            if epoch is not None:
                await self.require_other_epoch(wal_id, epoch)
            raise FencedError(f"{self.key(wal_id)} was taken by another writer; {ONE_WRITER}") from error

    async def try_put(self, wal_id: int, data: BytesLike, *, epoch: int | None = None) -> bool:
        """Write a file, or a fence of zero bytes, into a slot; return false if it is taken."""
        try:
            await self._store.put(self.key(wal_id), data, mode=CREATE, attributes=self._attributes(epoch))
        except AlreadyExists:
            return False
        return True

    async def try_put_fence(self, wal_id: int, *, epoch: int | None = None) -> bool:
        """Write zero bytes into a slot; return false if it is taken."""
        return await self.try_put(wal_id, b"", epoch=epoch)

    async def require_other_epoch(self, wal_id: int, epoch: int) -> int | None:
        """Return the epoch that a taken slot carries; ``None`` if it carries none, as files of SlateDB do.

        The retry layer has found already that the file is of another put.

        Raises:
            ProtocolPanic: it is ``epoch``: two writers have claimed the same epoch, so the manifest went back.
        """
        meta = await self._store.head(self.key(wal_id)) if self._marks_epoch else None
        text = (meta.attributes or {}).get(WRITER_EPOCH, "") if meta is not None else ""
        found = int(text) if text.isascii() and text.isdecimal() else None
        if found == epoch:
            raise ProtocolPanic("two writers have the same epoch", wal=self.key(wal_id), epoch=epoch)
        return found

    async def list(self) -> list[WalFile]:
        """List every file with a canonical name, ascending by id."""
        return [file async for page in self.pages() for file in page]

    async def pages(self, *, after: int = 0) -> AsyncIterator[Sequence[WalFile]]:
        """Yield the files of ``list`` with ids above ``after``, a page of the store at a time."""
        async for page in self._store.list_pages(wal_prefix(self._root), after=self.key(after) if after else ""):
            files = []
            for meta in page:
                wal_id = parse_wal_key(self._root, meta.key)
                if wal_id is not None:
                    files.append(WalFile(wal_id, meta.size, meta.last_modified_ms, meta.etag))
                elif "#" not in meta.key:
                    log.warning(Event.SEQUENCED_LIST_UNKNOWN_FILE, object=meta.key)
            yield files

    async def ids_after(self, wal_id: int) -> Sequence[WalId]:
        """List the ids above ``wal_id``, ascending."""
        return [file.id async for page in self.pages(after=wal_id) for file in page]

    async def delete(self, wal_id: int) -> None:
        """Delete a file; only a collector does."""
        await self._store.delete(self.key(wal_id))

    async def last_seen_wal_id(self, start_after: int, *, has_gaps: bool = False) -> WalId:
        """Return the highest id at or above ``start_after`` below which no file is missing.

        Without ``has_gaps``, ids above ``start_after`` must exist without a gap, which holds from the manifest's
        ``replay_after_wal_id`` on.  With an older start the result may be too low: read the manifest again afterwards
        and compare.  If a file is lost, the result is before it, or the end of the files after it where the probes meet
        them: then replay finds the lost one.

        Args:
            has_gaps: the WAL is written in parallel (``Manifest.has_parallel_wal``), so files may follow a missing one.

        Raises:
            InvalidDbState: the WAL has no end within 2**48 files.
        """
        if has_gaps:
            return await self._before_first_gap(start_after)
        present, missing = await self._bracket(start_after)
        while missing - present > 1:
            middle = (present + missing) // 2
            if await self.exists(start_after + middle):
                present = middle
            else:
                missing = middle
        return WalId(start_after + present)

    def _attributes(self, epoch: int | None) -> dict[str, str] | None:
        return {WRITER_EPOCH: str(epoch)} if epoch is not None and self._marks_epoch else None

    async def _before_first_gap(self, start_after: int) -> WalId:
        """Return the last id before the first missing one: probe the next ids, and list if all of them exist."""
        offsets = range(1, _PROBES_PER_ROUND + 1)
        there = await self._exist(start_after, offsets)
        if not all(there):
            return WalId(start_after + there.index(False))
        after = start_after + _PROBES_PER_ROUND
        return WalId(first_missing(await self.ids_after(after), after) - 1)

    async def _bracket(self, start_after: int) -> tuple[int, int]:
        """Return an offset that exists (or 0) and a greater one that does not, found in doubling steps.

        A missing file before one that exists is lost, or GC has deleted it, and is not the end.
        """
        present = 0
        for first in range(0, _DOUBLINGS_MAX, _PROBES_PER_ROUND):
            offsets = [2**doublings for doublings in range(first, first + _PROBES_PER_ROUND)]
            missing: int | None = None
            for offset, is_there in zip(offsets, await self._exist(start_after, offsets), strict=True):
                if is_there:
                    present, missing = offset, None
                elif missing is None:
                    missing = offset
            if missing is not None:
                return present, missing
        raise InvalidDbState(f"{wal_prefix(self._root)} has no end above {start_after}")

    async def _exist(self, start_after: int, offsets: Sequence[int]) -> Sequence[bool]:
        return await gather([partial(self.exists, start_after + offset) for offset in offsets])


def first_missing(ids: Iterable[int], after: int) -> int:
    """Return the lowest id above ``after`` that is not among ``ids``, which ascend."""
    wanted = after + 1
    for each in ids:
        if each > wanted:
            break
        if each == wanted:
            wanted += 1
    return wanted
