"""State that all connections of one server share: the database, the limits and the counters."""

from collections.abc import Iterable
from itertools import count
from secrets import compare_digest
from typing import TYPE_CHECKING

from shale.engine.db import Db
from shale.engine.db_reader import DbReader
from shale.env import Env
from shale.resp.cursors import Cursors
from shale.resp.lock_scripts import ScriptCache
from shale.resp.options import RespOptions

if TYPE_CHECKING:
    from shale.engine.read.reads import Reads


class Backend:
    """The database of one server: ``writer`` if it is open for writing, otherwise ``reader``.

    ``calls`` and ``errors`` count replies by command; ``other`` counts unknown commands.
    ``inflight_bytes`` are the bytes of commands that are incomplete or not executed yet.
    """

    def __init__(
        self, db: Db | DbReader, env: Env, options: RespOptions, token: str | None, names: Iterable[str]
    ) -> None:
        self.db: Reads = db
        self.writer = db if isinstance(db, Db) else None
        self.reader = db if isinstance(db, DbReader) else None
        self.env = env
        self.options = options
        self.cursors = Cursors(env.rng)
        self.scripts = ScriptCache()
        self.started_s = env.clock.monotonic_s()
        self.calls = dict.fromkeys((*names, "other"), 0)
        self.errors = dict.fromkeys(self.calls, 0)
        self.connections = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.protocol_errors = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.inflight_bytes = 0
        self.is_draining = False
        self._token = None if token is None else token.encode()
        self._ids = count(1)

    @property
    def has_password(self) -> bool:
        """Whether clients must authenticate."""
        return self._token is not None

    def is_password(self, text: bytes) -> bool:
        """Return whether this is the password."""
        return self._token is not None and compare_digest(text, self._token)

    def next_id(self) -> int:
        """Return the id of a new connection."""
        return next(self._ids)
