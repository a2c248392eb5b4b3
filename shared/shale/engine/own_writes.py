"""What a transaction has written and not committed, as a table above all others."""

from collections.abc import Sequence

from shale.engine.batch import WriteBatch
from shale.engine.sorted_part import SortedPart
from shale.kernels.rows import Rows, rows_from_entries
from shale.types import EVERYTHING, U64_MAX, Entry, KeyRange


class OwnWrites:
    """A batch, as reads of its own transaction see it.  See ``ReadTable``.

    Its rows are visible whatever the sequence number; their own are above all others, as in SlateDB.
    """

    __slots__ = ("_batch", "_sealed", "_sealed_range")

    def __init__(self, batch: WriteBatch) -> None:
        self._batch = batch
        self._sealed: SealedWrites | None = None
        self._sealed_range = EVERYTHING

    def __len__(self) -> int:
        return len(self._batch)

    def get(self, key: bytes, max_seq: int | None = None) -> Sequence[Entry]:  # noqa: ARG002 - all is visible
        """Versions of a key, newest first, down to the first that is no merge operand."""
        if key not in self._batch:
            return ()
        return [entry._replace(seq=U64_MAX - age) for age, entry in enumerate(self._batch.versions(key))]

    def parts(self, key_range: KeyRange | None = None) -> list[Rows]:
        """The rows in a range as sorted columns."""
        return self.sealed(EVERYTHING if key_range is None else key_range).parts()

    def changed(self) -> None:
        """The batch is another one now."""
        self._sealed = None

    def sealed(self, key_range: KeyRange) -> "SealedWrites":
        """The rows of a range as they are now: what is written later does not show in them."""
        if self._sealed is None or self._sealed_range != key_range:
            keys = sorted(filter(key_range.contains, self._batch))
            part = SortedPart(rows_from_entries([entry for key in keys for entry in self.get(key)]))
            self._sealed, self._sealed_range = SealedWrites(part), key_range
        return self._sealed


class SealedWrites:
    """What a transaction had written at one moment.  See ``ReadTable``."""

    __slots__ = ("_part",)

    def __init__(self, part: SortedPart) -> None:
        self._part = part

    def __len__(self) -> int:
        return len(self._part)

    def get(self, key: bytes, max_seq: int | None = None) -> Sequence[Entry]:  # noqa: ARG002 - all is visible
        """Versions of a key, newest first, down to the first that is no merge operand."""
        return self._part.versions(key, None)

    def parts(self, key_range: KeyRange | None = None) -> list[Rows]:
        """The rows in a range as sorted columns."""
        rows = self._part.slice(key_range)
        return [rows] if len(rows) else []
