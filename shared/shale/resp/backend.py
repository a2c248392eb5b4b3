"""State that all connections of one server share: the database, the limits and the counters."""

from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING

from shale.concurrency.loop_turns import LoopTurns
from shale.core.memory_account import MemoryPart
from shale.engine.db import Db
from shale.engine.db_reader import DbReader
from shale.env import Env
from shale.resp.composed import ComposedBytes
from shale.resp.cursors import Cursors
from shale.resp.latency import CommandLatency
from shale.resp.options import RespOptions
from shale.resp.scripts.lock_scripts import ScriptCache
from shale.service.access import AccessTokens, Role
from shale.service.audit import AuditLog
from shale.service.process import PortServices
from shale.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from shale.engine.read.reads import Reads


class Backend:
    """The database of one server: ``writer`` if it is open for writing, otherwise ``reader``.

    ``calls`` and ``errors`` count replies by command; ``other`` counts unknown commands.  Of the errors, ``failures``
    counts those that the client did not cause.
    ``inflight_bytes`` are the bytes of commands that are incomplete or not executed yet, ``composed`` those of values
    that running transactions have composed.
    """

    def __init__(
        self,
        db: Db | DbReader,
        env: Env,
        options: RespOptions,
        services: PortServices,
        names: Iterable[str],
        *,
        metrics: Metrics,
    ) -> None:
        self.db: Reads = db
        self.writer = db if isinstance(db, Db) else None
        self.reader = db if isinstance(db, DbReader) else None
        self.env = env
        self.options = options
        self.memory = services.memory
        self.turns = LoopTurns()
        self.composed = ComposedBytes()
        self.memory.account.add_meter(MemoryPart.REQUESTS, lambda: self.inflight_bytes + self.composed.size_bytes)
        self.cursors = Cursors(env.rng)
        self.scripts = ScriptCache()
        self.started_s = env.clock.monotonic_s()
        self.calls = dict.fromkeys((*names, "other"), 0)
        self.errors = dict.fromkeys(self.calls, 0)
        self.failures = dict.fromkeys(self.calls, 0)
        self.audit = AuditLog(metrics)
        self.latency = CommandLatency(env.clock, metrics)
        self.connections = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.protocol_errors = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.inflight_bytes = 0
        self.is_draining = False
        self._tokens = AccessTokens() if services.tokens is None else services.tokens
        self.quotas = self._tokens.quotas
        self._ids = count(1)

    @property
    def has_password(self) -> bool:
        """Whether clients must authenticate."""
        return not self._tokens.is_open

    def role_of(self, password: bytes) -> Role | None:
        """Return the role of a password; ``None`` if it is wrong."""
        return self._tokens.role_of(password)

    def failed(self, address: str) -> int | None:
        """Count a wrong password; return the seconds after which a client with too many of them may try again."""
        return None if self._tokens.failures is None else self._tokens.failures.failed(address)

    def next_id(self) -> int:
        """Return the id of a new connection."""
        return next(self._ids)
