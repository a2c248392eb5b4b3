"""The read methods of every blocking handle."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Generic, TypeVar, overload

from shale.codecs.codec import Codec
from shale.codecs.plain import BYTES
from shale.engine.batch import BytesLike
from shale.engine.mapping import KeySpace
from shale.engine.read_point import Durability
from shale.engine.reads import Reads
from shale.sync.background import Background
from shale.sync.mapping import ReadMapping
from shale.sync.scan import Scan
from shale.types import Row

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Reads)


class BlockingReads(Generic[R]):
    """The methods of ``shale.engine.reads.Reads``, blocking.

    May be used from any number of threads.  A handle that is dropped without ``close`` stays open until the program
    ends.
    """

    def __init__(self, inner: R, background: Background) -> None:
        self._inner = inner
        self._background = background

    def __reduce__(self) -> Any:
        return self._inner.__reduce__()

    def get(
        self,
        key: BytesLike,
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
    ) -> bytes | None:
        """The value of a key; ``None`` if it has none."""
        return self._background.call(
            self._inner.get(key, durability=durability, hide_expired=hide_expired, now_ms=now_ms)
        )

    def get_row(
        self,
        key: BytesLike,
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
    ) -> Row | None:
        """The value of a key with its place in history; ``None`` if it has none."""
        return self._background.call(
            self._inner.get_row(key, durability=durability, hide_expired=hide_expired, now_ms=now_ms)
        )

    def get_many(
        self,
        keys: Sequence[BytesLike],
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
        max_bytes: int | None = None,
    ) -> list[bytes | None]:
        """The values of many keys, in the order given; see ``shale.Db.get_many``."""
        return self._background.call(
            self._inner.get_many(
                keys, durability=durability, hide_expired=hide_expired, now_ms=now_ms, max_bytes=max_bytes
            )
        )

    def scan(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
        read_ahead_bytes: int | None = None,
        cache_blocks: bool = True,
    ) -> Scan:
        """Rows by key as they are now: an iterator, or use its ``batches``, ``columns`` or ``to_arrow``.

        Arguments and errors are those of ``shale.Db.scan``.
        """
        begin = partial(
            self._inner.scan,
            prefix=prefix,
            start=start,
            stop=stop,
            reverse=reverse,
            limit=limit,
            durability=durability,
            hide_expired=hide_expired,
            now_ms=now_ms,
            read_ahead_bytes=read_ahead_bytes,
            cache_blocks=cache_blocks,
        )
        return Scan(self._background.at_once(begin), self._background, backward=reverse)

    @overload
    def mapping(self, *, codec: Codec[V], prefix: BytesLike = b"") -> ReadMapping[bytes, V]: ...

    @overload
    def mapping(self, *, codec: Codec[V], key_codec: Codec[K], prefix: BytesLike = b"") -> ReadMapping[K, V]: ...

    def mapping(self, *, codec: Codec[Any], key_codec: Codec[Any] = BYTES, prefix: BytesLike = b"") -> Any:
        """The rows below a prefix as a ``Mapping`` from objects to objects.

        Args:
            codec: of the values, see ``shale.codecs``.
            key_codec: of the keys behind the prefix; bytes as they are by default.
            prefix: of all its keys, not part of the objects.
        """
        return ReadMapping(self, KeySpace(bytes(prefix), key_codec, codec))
