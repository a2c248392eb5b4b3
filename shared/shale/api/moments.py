"""The state of a database at one moment, for reads that take several requests or a long one."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from shale.engine.read_point import Durability
from shale.engine.reader_snapshot import ReaderSnapshot
from shale.engine.snapshot import Snapshot

Moment: TypeAlias = Snapshot | ReaderSnapshot
"""A snapshot, whoever made it."""

TakeMoment: TypeAlias = Callable[[Durability], Awaitable[Moment]]
"""Makes a snapshot of now."""
