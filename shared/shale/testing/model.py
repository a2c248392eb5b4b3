"""A reference model of a database: a list of commits.

Every read searches all of them, so the model shares no code, and no mistake, with the
engine.  Where the engine is free (a row that has expired is shown until a flush or a compaction has removed it), the
answer is the set of possible results; a row that was once seen to be gone must not return.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Literal, NamedTuple, TypeAlias

from shale.core.lazy_dataclass import dataclass
from shale.types import Row

Kind: TypeAlias = Literal["put", "delete", "merge"]
Operator: TypeAlias = Callable[[bytes, bytes | None, Sequence[bytes]], bytes]


class Op(NamedTuple):
    """One write of a batch.  ``ttl_ms`` is ``None`` for ever."""

    kind: Kind
    key: bytes
    value: bytes = b""
    ttl_ms: int | None = None


class Version(NamedTuple):
    """What one commit wrote for one key; operands of merges are folded."""

    seq: int
    kind: Kind
    value: bytes
    create_ts: int
    expire_ts: int | None


@dataclass(frozen=True, slots=True)
class Commit:
    """``hidden`` are keys whose writes conflict with no other transaction."""

    seq: int
    versions: dict[bytes, Version]
    hidden: frozenset[bytes] = frozenset()


class Span(NamedTuple):
    """Keys from ``start`` on, below ``stop``, with a prefix; ``first`` and ``last`` are inclusive bounds."""

    start: bytes | None = None
    stop: bytes | None = None
    prefix: bytes | None = None
    last: bytes | None = None
    first: bytes | None = None

    def contains(self, key: bytes) -> bool:
        """Whether a key is one of them."""
        return (
            (self.start is None or key >= self.start)
            and (self.stop is None or key < self.stop)
            and (self.prefix is None or key.startswith(self.prefix))
            and (self.last is None or key <= self.last)
            and (self.first is None or key >= self.first)
        )


class ModelScan(NamedTuple):
    """A scan of a range, in either direction; ``limit``: the most rows it returns."""

    span: Span = Span()
    reverse: bool = False
    limit: int | None = None


@dataclass(slots=True)
class TransactionModel:
    """An open transaction.

    Attributes:
        seq: the newest commit that it sees.
        ops: its writes, in order.
        marked: keys marked as read.
        unmarked: keys whose writes do not conflict.
    """

    seq: int
    serializable: bool
    ops: list[Op] = field(default_factory=list)
    read_keys: set[bytes] = field(default_factory=set)
    spans: list[Span] = field(default_factory=list)
    marked: set[bytes] = field(default_factory=set)
    unmarked: set[bytes] = field(default_factory=set)

    def read(self, *keys: bytes) -> None:
        """Record keys that were read."""
        if self.serializable:
            self.read_keys.update(keys)

    def scanned(self, span: Span) -> None:
        """Record a range that was read."""
        if self.serializable:
            self.spans.append(span)


class Model:
    """The commits of a database, oldest first.

    Args:
        operator: folds merges.
    """

    def __init__(self, operator: Operator) -> None:
        self.commits: list[Commit] = []
        self.last_seq = 0
        self.durable_seq = 0
        self._operator = operator
        self._gone: set[tuple[bytes, int]] = set()
        """Versions that have expired and were seen to be gone."""

    def commit(self, ops: Iterable[Op], seq: int, create_ts: int, *, hidden: Iterable[bytes] = ()) -> None:
        """Write a batch; of several writes of a key the later ones win, or are folded."""
        assert seq > self.last_seq, f"commit {seq} is not above {self.last_seq}"
        versions: dict[bytes, Version] = {}
        for op in ops:
            versions[op.key] = self._above(versions.get(op.key), op, seq, create_ts)
        self.commits.append(Commit(seq, versions, frozenset(hidden)))
        self.last_seq = seq

    def forget_after(self, seq: int) -> None:
        """Remove the commits after ``seq``, which a crash has undone."""
        assert seq >= self.durable_seq, f"commits up to {self.durable_seq} were durable, and only {seq} are left"
        self.commits = [commit for commit in self.commits if commit.seq <= seq]
        self.last_seq = self.durable_seq = seq

    def conflicts(self, tx: TransactionModel) -> bool:
        """Return whether a transaction conflicts with a commit made since it began."""
        keys = ({op.key for op in tx.ops} - tx.unmarked) | tx.read_keys | tx.marked
        return any(
            key in keys or any(span.contains(key) for span in tx.spans)
            for commit in self.commits
            if commit.seq > tx.seq
            for key in commit.versions
            if key not in commit.hidden
        )

    def keys(self, tx: TransactionModel | None = None) -> list[bytes]:
        """Return all keys that were ever written, in order."""
        return sorted(
            {key for commit in self.commits for key in commit.versions} | {op.key for op in (tx.ops if tx else ())}
        )

    def possible(
        self,
        key: bytes,
        seq: int,
        now: tuple[int, int],
        tx: TransactionModel | None = None,
        *,
        hide_expired: bool = False,
        lenient: bool = False,
    ) -> set[bytes | None]:
        """Return the possible results of a read at a sequence number; ``None`` is no row.

        Args:
            now: the clock before and after the read; rows that expire by then may be gone.
            tx: its writes are on top.
            hide_expired: expired rows must not be returned.
            lenient: rows once seen to be gone may be returned, by a read that began before.
        """
        operands: list[bytes] = []
        for version in self._newest_first(key, seq, tx):
            if version.kind == "merge":
                operands.insert(0, version.value)
                continue
            found: set[bytes | None] = {version.value} if version.kind == "put" else {None}
            if version.expire_ts is not None and version.expire_ts <= now[1]:
                is_hidden = hide_expired and version.expire_ts <= now[0]
                was_gone = (key, version.seq) in self._gone and not lenient
                found = {None} if is_hidden or was_gone else {version.value, None}
            return {self._folded(key, each, operands) for each in found}
        return {self._folded(key, None, operands)}

    def check_get(
        self,
        shown: bytes | None,
        key: bytes,
        seq: int,
        now: tuple[int, int],
        tx: TransactionModel | None = None,
        *,
        hide_expired: bool = False,
        lenient: bool = False,
    ) -> None:
        """Assert that a read may have returned ``shown``."""
        wanted = self.possible(key, seq, now, tx, hide_expired=hide_expired, lenient=lenient)
        assert shown in wanted, f"{key!r} at {seq}: {shown!r} was read, of {wanted!r}"
        if len(wanted) == 2 and shown is None and not hide_expired:
            newest = next(iter(self._newest_first(key, seq, tx)))
            self._gone.add((key, newest.seq))

    def check_row(self, row: Row | None, key: bytes, seq: int, now: tuple[int, int]) -> None:
        """Assert that a read may have returned this row, with its sequence number and times."""
        self.check_get(None if row is None else row.value, key, seq, now)
        if row is not None:
            newest = next(iter(self._newest_first(key, seq, None)))
            wanted = (key, newest.seq, newest.create_ts, newest.expire_ts)
            assert (row.key, row.seq, row.create_ts, row.expire_ts) == wanted, f"{row} where {newest} was written"

    def check_scan(
        self,
        shown: Sequence[tuple[bytes, bytes]],
        scan: ModelScan,
        seq: int,
        now: tuple[int, int],
        tx: TransactionModel | None = None,
        *,
        hide_expired: bool = False,
        lenient: bool = False,
    ) -> None:
        """Assert that a scan may have returned exactly these rows."""
        left = list(shown)
        keys = [key for key in self.keys(tx) if scan.span.contains(key)]
        for key in reversed(keys) if scan.reverse else keys:
            if scan.limit is not None and len(shown) - len(left) == scan.limit:
                break
            value = left.pop(0)[1] if left and left[0][0] == key else None
            self.check_get(value, key, seq, now, tx, hide_expired=hide_expired, lenient=lenient)
        assert not left, f"the scan of {scan.span} showed {left[0]}, which was not written, or is out of order: {shown}"

    def _newest_first(self, key: bytes, seq: int, tx: TransactionModel | None) -> Iterable[Version]:
        """Yield the versions of a key, newest first, after own writes of a transaction."""
        if tx is not None:
            own: Version | None = None
            for op in tx.ops:
                if op.key == key:
                    own = self._above(own, op, 0, 0)
            if own is not None:
                yield own._replace(expire_ts=None)
        for commit in reversed(self.commits):
            if commit.seq <= seq and key in commit.versions:
                yield commit.versions[key]

    def _above(self, below: Version | None, op: Op, seq: int, create_ts: int) -> Version:
        """Apply a write of a batch to the earlier write of the batch for the key."""
        expire_ts = None if op.ttl_ms is None else create_ts + op.ttl_ms
        if op.kind != "merge" or below is None:
            return Version(seq, op.kind, op.value, create_ts, expire_ts)
        if below.kind == "merge":
            folded = self._operator(op.key, None, [below.value, op.value])
            return below._replace(value=folded)
        base = below.value if below.kind == "put" else None
        return Version(seq, "put", self._operator(op.key, base, [op.value]), create_ts, below.expire_ts)

    def _folded(self, key: bytes, base: bytes | None, operands: list[bytes]) -> bytes | None:
        return self._operator(key, base, operands) if operands else base
