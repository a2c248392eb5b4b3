"""The read methods of every blocking handle."""

from collections.abc import Iterator
from functools import partial
from typing import Any, TypeVar, overload

from shale.codecs.codec import Codec
from shale.codecs.plain import BYTES
from shale.concurrency.blocking import BlockingHandle, blocking, parameters_of
from shale.core.bytes_like import BytesLike
from shale.engine.mapping import KeySpace
from shale.engine.read.reads import Reads
from shale.sync.loop_thread import LoopThread
from shale.sync.mapping import ReadMapping
from shale.sync.scan import Scan, recent_rows
from shale.types import Entry

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Reads)


class BlockingReads(BlockingHandle[R]):
    """The methods of ``shale.engine.read.reads.Reads``, blocking.

    May be used from any number of threads.  A handle that is dropped without ``close`` stays open until the program
    ends.
    """

    def __init__(self, inner: R, loop: LoopThread) -> None:
        super().__init__(inner, loop.call)
        self._loop = loop

    def __reduce__(self) -> Any:
        return self._inner.__reduce__()

    @property
    def gets(self) -> int:
        """Keys that this handle has looked up."""
        return self._inner.gets

    @property
    def scans(self) -> int:
        """Scans that this handle has begun."""
        return self._inner.scans

    get = blocking(Reads.get)
    get_row = blocking(Reads.get_row)
    get_many = blocking(Reads.get_many)

    @parameters_of(Reads.scan)
    def scan(self, **options: Any) -> Scan:
        """Return the current rows by key: an iterator with ``batches``, ``columns`` and ``to_arrow``.

        Arguments and errors are those of ``shale.Db.scan``.
        """
        inner = self._loop.call_function(partial(self._inner.scan, **options))
        return Scan(inner, self._loop, backward=options.get("reverse", False))

    @parameters_of(Reads.scan_prefix_by_recency)
    def scan_prefix_by_recency(self, *arguments: Any, **options: Any) -> Iterator[Entry]:
        """Yield the stored rows of a prefix, the newest source first; see ``shale.Db.scan_prefix_by_recency``."""
        call = partial(self._inner.scan_prefix_by_recency, *arguments, **options)
        return recent_rows(self._loop.call_function(call), self._loop)

    @overload
    def mapping(self, *, codec: Codec[V], prefix: BytesLike = b"") -> ReadMapping[bytes, V]: ...

    @overload
    def mapping(self, *, codec: Codec[V], key_codec: Codec[K], prefix: BytesLike = b"") -> ReadMapping[K, V]: ...

    def mapping(self, *, codec: Codec[Any], key_codec: Codec[Any] = BYTES, prefix: BytesLike = b"") -> Any:
        """Return the rows below a prefix as a ``Mapping`` from objects to objects; see ``shale.Db.mapping``."""
        return ReadMapping(self, KeySpace(prefix, key_codec, codec))
