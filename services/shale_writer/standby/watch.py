"""Watches the active writer of a database until this process has to take over.

It writes nothing while the active writer answers.  If that shows no other sign of life, a challenge is written into the
manifest, which a writer that is alive answers within a poll.

Source: docs/adr/0015-standby-by-challenge.md.
"""

from collections.abc import Awaitable, Callable
from socket import gethostname

import anyio

from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.engine.location import ConnectedDatabase
from shale.engine.write.clean_close import was_closed
from shale.env import Env
from shale.errors import UnavailableError
from shale.protocol.checkpoints import add_checkpoint
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.protocol.options import ProtocolOptions
from shale.protocol.transactional import Stored
from shale.protocol.versioned import Versioned
from shale.protocol.wal_store import WalStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Epoch, Manifest
from shale.types.writer_sign import WriterStatus, challenge_name, writer_status
from shale_writer.standby.decision import Action, Reason, StandbyPolicy, decide
from shale_writer.standby.evidence import Evidence, ManifestRead

POLL_LIMIT_S = 10.0
"""One look at the store or the active writer takes no longer; then the next one begins."""
CHALLENGE_LIFETIME_MS = 600_000
"""A challenge that nothing answers keeps its version of the manifest for this long at most."""

Probe = Callable[[WriterStatus], Awaitable[bool]]
"""Asks the active writer itself, for example over HTTP; ``True``: it answered, and has proved its epoch lately."""

log = get_logger("standby")


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """The decision to take over.

    ``epoch``: the newest epoch that was seen; the claim must follow it.  ``silent_s``: since the last evidence of life.
    """

    reason: Reason
    epoch: int
    silent_s: float


class Standby:
    """One standby process.

    Args:
        database: its stores and path.
        env: clock and ids.
        metrics: counts requests and challenges.
        policy: the intervals.
        protocol: how manifests are read and written.
        probe: asks the active writer.
    """

    def __init__(
        self,
        database: ConnectedDatabase,
        env: Env,
        metrics: Metrics,
        *,
        policy: StandbyPolicy,
        protocol: ProtocolOptions,
        probe: Probe,
    ) -> None:
        self._manifests = ManifestStore(database.store, database.root, env, metrics, protocol)
        self._wal = WalStore(database.wal_store or database.store, database.root)
        self._env = env
        self._policy = policy
        self._probe = probe
        self._stored: StoredManifest | None = None
        self._closed_at: tuple[int, bool] = (0, False)
        self._promoted = anyio.Event()
        self._evidence = Evidence(env.clock.monotonic_s())
        self._challenges = metrics.counter("shale_standby_challenges_total")
        self._is_watching = True
        silence = metrics.gauge("shale_standby_active_silent_seconds")
        metrics.before_scrape(lambda: silence.set(self.silent_s if self._is_watching else 0.0))

    @property
    def active(self) -> WriterStatus | None:
        """The writer of the newest epoch, as its manifest shows it; ``None`` if there is no database."""
        return self._evidence.status

    @property
    def manifest(self) -> Manifest | None:
        """The newest manifest that was read; ``None`` if there is no database."""
        return None if self._stored is None else self._stored.value

    @property
    def silent_s(self) -> float:
        """The seconds since the last evidence that the active writer lives."""
        return max(0.0, self._env.clock.monotonic_s() - self._evidence.observed.alive_s)

    def promote(self) -> None:
        """Take over now, whatever the active writer shows."""
        self._promoted.set()

    async def wait(self, beat: Callable[[], None] = lambda: None) -> Takeover:
        """Watch until it is time to take over.

        Args:
            beat: called with each round.

        Raises:
            ShaleError: the database cannot be read.
        """
        self._is_watching = True
        while True:
            beat()
            await self._look()
            if self._promoted.is_set():
                self._promoted = anyio.Event()
                return self._takeover(Reason.PROMOTED)
            action, reason = decide(self._evidence.observed, self._policy, self._env.clock.monotonic_s())
            if reason is not None:
                return self._takeover(reason)
            if action is Action.CHALLENGE:
                await self._bounded(self._challenge)
            with anyio.move_on_after(self._policy.poll_interval_s):
                await self._promoted.wait()

    def _takeover(self, reason: Reason) -> Takeover:
        self._is_watching = False
        return Takeover(reason=reason, epoch=self._evidence.epoch, silent_s=self.silent_s)

    async def _look(self) -> None:
        """Read the manifest and ask the active writer, at the same time."""
        await gather([lambda: self._bounded(self._read), self._ask])

    async def _bounded(self, request: Callable[[], Awaitable[None]]) -> None:
        try:
            with anyio.move_on_after(POLL_LIMIT_S) as scope:
                await request()
            if scope.cancelled_caught:
                log.warning(Event.STANDBY_POLL_FAILED, error=f"the store did not answer within {POLL_LIMIT_S:g} s")
        except UnavailableError as error:
            log.warning(Event.STANDBY_POLL_FAILED, error=str(error))

    async def _read(self) -> None:
        clock = self._env.clock
        begun_s = clock.monotonic_s()
        if self._stored is not None:
            await self._stored.refresh()
        else:
            latest = await self._manifests.try_read_latest()
            if latest is None:
                self._evidence.saw_no_database(begun_s)
                return
            self._stored = Stored(self._manifests, latest, self._env)
        stored = self._stored
        manifest, is_closed, wal_id = stored.value, False, 0
        if manifest.writer_epoch and writer_status(manifest, now_ms=0).identity is None:
            is_closed = await self._is_closed(stored)
            if not is_closed:
                wal_id = await self._wal.last_seen_wal_id(
                    manifest.replay_after_wal_id, has_gaps=manifest.has_parallel_wal
                )
        read = ManifestRead(
            manifest=manifest,
            begun_s=begun_s,
            ended_s=clock.monotonic_s(),
            is_closed=is_closed,
            wal_id=wal_id,
        )
        if self._evidence.saw_manifest(read) and not is_closed:
            self._log_active()

    async def _is_closed(self, stored: StoredManifest) -> bool:
        """Return whether the last writer has closed; older versions are read once per version."""
        if self._closed_at[0] != stored.id:
            self._closed_at = stored.id, await was_closed(stored) is True
        return self._closed_at[1]

    async def _ask(self) -> None:
        active, asked_s = self._evidence.status, self._env.clock.monotonic_s()
        if active is not None and await self._probe(active):
            self._evidence.saw_answer(active.epoch, asked_s)

    async def _challenge(self) -> None:
        stored, epoch = self._stored, self._evidence.epoch
        assert stored is not None
        challenge = self._env.ids.uuid()

        def change(current: Versioned[Manifest]) -> Manifest | None:
            # Another writer, or one that has closed meanwhile, is not challenged: the next look tells.
            manifest = current.value
            if manifest.writer_epoch != epoch or writer_status(manifest, now_ms=0).identity is None:
                return None
            return add_checkpoint(
                manifest,
                current.id + 1,
                id=challenge,
                now_ms=self._env.clock.now_ms(),
                lifetime_ms=CHALLENGE_LIFETIME_MS,
                name=challenge_name(Epoch(epoch), gethostname()),
            )

        committed = await stored.apply(change)
        if committed.value.checkpoint(challenge) is None:
            return
        self._evidence.challenged(challenge, self._env.clock.monotonic_s())
        self._challenges.inc()
        log.info(Event.STANDBY_CHALLENGED, epoch=epoch, silent_s=round(self.silent_s, 1))

    def _log_active(self) -> None:
        active = self._evidence.status
        if active is None or not active.epoch:
            return
        identity = active.identity
        log.info(
            Event.STANDBY_WAITING,
            epoch=active.epoch,
            host=None if identity is None else identity.host,
            endpoint=None if identity is None else identity.endpoint,
        )
