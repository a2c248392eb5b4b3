"""The read calls, which ``Db``, ``DbReader``, ``DbSnapshot`` and ``DbTransaction`` share."""

from shale.compat.slatedb.arguments import (
    bounds_of,
    checked_key,
    checked_value,
    durability_in,
    key_value,
    scan_arguments,
)
from shale.compat.slatedb.errors import translates
from shale.compat.slatedb.handles import Handle
from shale.compat.slatedb.iterator import DbIterator, iterator_of
from shale.compat.slatedb.options import ReadOptions, ScanOptions
from shale.compat.slatedb.recording import Recording
from shale.compat.slatedb.values import KeyRange, KeyValue
from shale.engine.reads import Reads


class ReadCalls(Handle):
    """Lookups and scans over what ``_reads`` shows."""

    __slots__ = ("_recording", "_source")

    _source: Reads
    _recording: Recording

    def _reads(self) -> Reads:
        """Where calls look.

        Raises:
            Error: nowhere any more.
        """
        return self._source

    @translates
    async def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        wanted = checked_key(key)
        self._recording.get(1)
        return await self._reads().get(wanted)

    @translates
    async def get_with_options(self, key: bytes, options: ReadOptions) -> bytes | None:
        """The value of a key, of as much as the options let show."""
        wanted = checked_key(key)
        self._recording.get(1)
        return await self._reads().get(wanted, durability=durability_in(options))

    @translates
    async def get_key_value(self, key: bytes) -> KeyValue | None:
        """The row of a key."""
        wanted = checked_key(key)
        self._recording.get(1)
        row = await self._reads().get_row(wanted)
        return None if row is None else key_value(row)

    @translates
    async def get_key_value_with_options(self, key: bytes, options: ReadOptions) -> KeyValue | None:
        """The row of a key, of as much as the options let show."""
        wanted = checked_key(key)
        self._recording.get(1)
        row = await self._reads().get_row(wanted, durability=durability_in(options))
        return None if row is None else key_value(row)

    @translates
    async def scan(self, range: KeyRange) -> DbIterator:  # noqa: A002 - the binding's name
        """The rows of a range."""
        return self._scan(range, b"", None)

    @translates
    async def scan_with_options(self, range: KeyRange, options: ScanOptions) -> DbIterator:  # noqa: A002
        """The rows of a range, in the order that the options say."""
        return self._scan(range, b"", options)

    @translates
    async def scan_prefix(self, prefix: bytes, subrange: KeyRange) -> DbIterator:
        """The rows whose keys begin with a prefix; the bounds are of what follows it."""
        return self._scan(subrange, checked_value(prefix), None)

    @translates
    async def scan_prefix_with_options(self, prefix: bytes, subrange: KeyRange, options: ScanOptions) -> DbIterator:
        """The rows whose keys begin with a prefix, in the order that the options say."""
        return self._scan(subrange, checked_value(prefix), options)

    def _scan(self, key_range: KeyRange, prefix: bytes, options: ScanOptions | None) -> DbIterator:
        start, stop = bounds_of(key_range, prefix)
        arguments = scan_arguments(options)
        self._recording.scan(1)
        scan = self._reads().scan(prefix=prefix or None, start=start, stop=stop, **arguments)
        return iterator_of(scan, is_backward=arguments.get("reverse", False))
