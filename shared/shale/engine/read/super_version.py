"""One state of a database, ready to be read: memtables above the SSTs of one manifest.

A super version never changes.  Its active memtable grows, and the ``max_seq`` of a read bounds what the read sees.  A
new manifest or a frozen memtable makes a new super version; a scan under way keeps the old one, and with it every
buffer it needs.
"""

from collections.abc import Sequence

from shale.engine.memtable.memtable import Memtable
from shale.engine.read.pins import Pin
from shale.engine.read.read_options import ReadOptions, ReadTable
from shale.engine.read.tree_lookup import TreeRouter
from shale.sst.reader import SstReader
from shale.types import Manifest


class SuperVersion:
    """The memtables, L0s and sorted runs that reads search, with the sequence bound of the SSTs.

    ``shale.engine.read.lookup`` searches it for keys, ``shale.engine.scan`` for ranges of keys.
    """

    __slots__ = ("__weakref__", "manifest", "newest", "older", "options", "own", "pin", "reader", "tables", "trees")

    def __init__(
        self,
        manifest: Manifest,
        tables: Sequence[ReadTable],
        reader: SstReader,
        options: ReadOptions,
        *,
        pin: Pin | None = None,
        previous: "SuperVersion | None" = None,
        own: ReadTable | None = None,
    ) -> None:
        """Make no request.

        Args:
            manifest: names the SSTs.
            tables: memtables, newest first.
            reader: reads SSTs.
            options: options of the handle.
            pin: protects the SSTs from the collector; ``None``: the caller protects them.
            previous: an older super version of the same handle, whose lookup tables of unchanged trees are reused.
            own: uncommitted writes of a transaction, above everything and visible at any ``max_seq``.
        """
        self.manifest = manifest
        self.own = own
        self.tables = tuple(tables) if own is None else (own, *tables)
        newest = self.tables[0] if self.tables else None
        self.newest = newest if type(newest) is Memtable else None
        """The first table, if it is a memtable; ``older`` are the tables below it."""
        self.older = self.tables[1:]
        self.reader = reader
        self.options = options
        self.pin = pin if pin is not None else Pin()
        if previous is not None and previous.manifest is manifest:
            self.trees: TreeRouter = previous.trees
        else:
            reader.follow(manifest)
            self.trees = TreeRouter(manifest, reader, None if previous is None else previous.trees)

    def with_own_writes(self, own: ReadTable) -> "SuperVersion":
        """Return this state with the uncommitted writes of a transaction on top.

        Reads see them at any ``max_seq``, with sequence numbers above all others.
        """
        return SuperVersion(
            self.manifest,
            self.tables if self.own is None else self.tables[1:],
            self.reader,
            self.options,
            pin=self.pin,
            previous=self,
            own=own,
        )
