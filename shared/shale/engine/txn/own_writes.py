"""The uncommitted writes of a transaction, as a table above all others."""

from collections.abc import Callable, Sequence

from shale.engine.memtable.sorted_part import SortedPart
from shale.engine.write.batch import WriteBatch
from shale.kernels.rows import rows_from_entries
from shale.types import EVERYTHING, U64_MAX, Entry, KeyRange


class OwnWrites:
    """The batch of a transaction as a ``ReadTable`` for its own reads.

    Its rows are visible at every sequence number; their own sequence numbers are above all others, as in SlateDB.  They
    expire as if they were committed at the time of the read.

    Args:
        batch: the writes.
        default_ttl_ms: the database's default lifetime.
        now_ms: the clock; ``None``: the rows have no times of expiry.
    """

    __slots__ = ("_batch", "_default_ttl_ms", "_now_ms", "_sealed", "_sealed_range")

    def __init__(self, batch: WriteBatch, default_ttl_ms: int | None, now_ms: Callable[[], int] | None) -> None:
        self._batch = batch
        self._default_ttl_ms = default_ttl_ms
        self._now_ms = now_ms
        self._sealed: FrozenWrites | None = None
        self._sealed_range = EVERYTHING

    def __len__(self) -> int:
        return len(self._batch)

    def get(self, key: bytes, max_seq: int | None = None) -> Sequence[Entry]:  # noqa: ARG002 - all is visible
        """Return versions of a key, newest first, down to the newest that is no merge operand."""
        if key not in self._batch:
            return ()
        now_ms = None if self._now_ms is None else self._now_ms()
        versions = self._batch.versions(key, self._default_ttl_ms, now_ms)
        return [entry._replace(seq=U64_MAX - age) for age, entry in enumerate(versions)]

    def sorted_parts(self) -> list[SortedPart]:
        """Return all rows as sorted parts."""
        return self.sealed(EVERYTHING).sorted_parts()

    def changed(self) -> None:
        """Discard the sorted copy: the batch has changed."""
        self._sealed = None

    def sealed(self, key_range: KeyRange) -> "FrozenWrites":
        """Return the rows of a range as they are now; later writes do not change them."""
        if self._sealed is None or self._sealed_range != key_range:
            keys = sorted(filter(key_range.contains, self._batch))
            part = SortedPart(rows_from_entries([entry for key in keys for entry in self.get(key)]))
            self._sealed, self._sealed_range = FrozenWrites(part), key_range
        return self._sealed


class FrozenWrites:
    """The writes of a transaction at one moment, as a ``ReadTable``."""

    __slots__ = ("_part",)

    def __init__(self, part: SortedPart) -> None:
        self._part = part

    def __len__(self) -> int:
        return len(self._part)

    def get(self, key: bytes, max_seq: int | None = None) -> Sequence[Entry]:  # noqa: ARG002 - all is visible
        """Return versions of a key, newest first, down to the newest that is no merge operand."""
        return self._part.versions(key, None)

    def sorted_parts(self) -> list[SortedPart]:
        """Return all rows as sorted parts."""
        return [self._part] if len(self._part) else []
