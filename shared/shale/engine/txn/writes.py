"""The writes of a transaction: they are recorded at once, and written by the commit."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from shale.codecs.codec import Codec
from shale.codecs.plain import BYTES
from shale.core.argument_types import keys_of
from shale.core.async_use import RECORDED, RecordedWrite
from shale.core.bytes_like import BytesLike
from shale.core.lazy_names import import_at_call
from shale.core.ttl import Timestamp, Ttl
from shale.engine.read.reads import KEY_BYTES_MAX, Reads
from shale.engine.txn.own_writes import OwnWrites
from shale.engine.write.batch import NO_OPERATOR, WriteBatch, checked_key, require_batch
from shale.engine.write.writer import Writer
from shale.errors import InvalidRequestError, MergeOperatorMissing

if TYPE_CHECKING:
    from shale.engine.mapping import KeySpace, TransactionMapping
else:
    KeySpace, TransactionMapping = import_at_call(
        globals(), KeySpace="shale.engine.mapping", TransactionMapping="shale.engine.mapping"
    )

K = TypeVar("K")
V = TypeVar("V")


class TransactionWrites(Reads):
    """The writes; they may be awaited, like those of ``Db``, and are recorded whether they are awaited or not."""

    __slots__ = ("_batch", "_is_over", "_own", "_read_keys", "_unmarked", "_writer")

    def __init__(self, writer: Writer, *, tells_own_lifetimes: bool) -> None:
        super().__init__(visible_range=writer.options.enforce_visible_range)
        self._writer = writer
        self._batch = self.new_batch()
        self._own = OwnWrites(
            self._batch, writer.options.default_ttl_ms, writer.clock_ms if tells_own_lifetimes else None
        )
        self._unmarked: set[bytes] = set()
        self._read_keys: set[bytes] = set()
        self._is_over = False

    def new_batch(self) -> WriteBatch:
        """Return an empty batch with the limits of this database."""
        return WriteBatch(max_key_bytes=self._writer.options.max_key_bytes)

    def put(
        self, key: BytesLike, value: BytesLike, *, ttl: Ttl = None, expire_at: Timestamp | None = None
    ) -> RecordedWrite:
        """Add a put to the commit; the arguments are those of ``Db.put``.

        Raises:
            InvalidRequestError: an impossible key, value or lifetime, or the transaction is over.
        """
        self._require_open()
        self._batch.put(key, value, ttl=ttl, expire_at=expire_at)
        self._own.changed()
        return RECORDED

    def delete(self, key: BytesLike) -> RecordedWrite:
        """Add a deletion to the commit; raises like ``put``."""
        self._require_open()
        self._batch.delete(key)
        self._own.changed()
        return RECORDED

    def merge(
        self, key: BytesLike, operand: BytesLike, *, ttl: Ttl = None, expire_at: Timestamp | None = None
    ) -> RecordedWrite:
        """Add a merge operand to the commit; raises like ``put``.

        Raises:
            MergeOperatorMissing: the database was opened without an operator.
        """
        self._require_open()
        if self._writer.views.merge_operator is None:
            raise MergeOperatorMissing(NO_OPERATOR)
        self._batch.merge(key, operand, ttl=ttl, expire_at=expire_at)
        self._own.changed()
        return RECORDED

    def write(self, batch: WriteBatch) -> RecordedWrite:
        """Add the writes of a batch to the commit; the batch is not changed.  Raises like ``put`` and ``merge``."""
        self._require_open()
        if require_batch(batch).has_merges and self._writer.views.merge_operator is None:
            raise MergeOperatorMissing(NO_OPERATOR)
        self._batch.extend(batch)
        self._own.changed()
        return RECORDED

    def mark_read(self, keys: Iterable[BytesLike]) -> None:
        """Let the commit conflict with later writes of these keys, at every isolation level.

        Raises:
            InvalidRequestError: an impossible key, or the transaction is over.
        """
        self._require_open()
        self._read_keys.update([checked_key(key, KEY_BYTES_MAX) for key in keys_of(keys)])

    def unmark_write(self, keys: Iterable[BytesLike]) -> None:
        """Let this transaction's writes of these keys never conflict: the last commit counts.

        Raises:
            InvalidRequestError: an impossible key, or the transaction is over.
        """
        self._require_open()
        self._unmarked.update([checked_key(key, KEY_BYTES_MAX) for key in keys_of(keys)])

    @overload
    def mapping(self, *, codec: Codec[V], prefix: BytesLike = b"") -> "TransactionMapping[bytes, V]": ...

    @overload
    def mapping(
        self, *, codec: Codec[V], key_codec: Codec[K], prefix: BytesLike = b""
    ) -> "TransactionMapping[K, V]": ...

    def mapping(self, *, codec: Codec[Any], key_codec: Codec[Any] = BYTES, prefix: BytesLike = b"") -> Any:
        """Return the rows with a key prefix as a mapping to read and write; see ``Db.mapping``."""
        return TransactionMapping(self, KeySpace(prefix, key_codec, codec))

    def _require_open(self) -> None:
        if self._is_over:
            raise InvalidRequestError("the transaction has already been completed: begin another one")
