"""What all connections of one server share: the database, the limits, and what is counted."""

from collections.abc import Iterable
from itertools import count
from secrets import compare_digest
from typing import TYPE_CHECKING

from shale.engine.db import Db
from shale.engine.db_reader import DbReader
from shale.env import Env
from shale.resp.cursors import Cursors
from shale.resp.options import RespOptions

if TYPE_CHECKING:
    from shale.engine.reads import Reads


class Backend:
    """One database, as the commands see it: open for writing, or followed by a reader (then ``reader`` is it).

    ``calls`` and ``errors`` count answers by command; ``other`` stands for names that are no command.
    ``inflight_bytes`` is what connections keep of commands that were not run.
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
        """Whether clients must say one."""
        return self._token is not None

    def is_password(self, text: bytes) -> bool:
        """Whether a client may come in with this."""
        return self._token is not None and compare_digest(text, self._token)

    def next_id(self) -> int:
        """A number for a connection."""
        return next(self._ids)
