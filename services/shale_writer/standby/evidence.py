"""What a standby has seen of the active writer, from manifests, answers over HTTP, and its own challenge."""

from dataclasses import replace
from uuid import UUID

from shale.core.lazy_dataclass import dataclass
from shale.types import Manifest
from shale.types.writer_sign import WriterStatus, writer_status
from shale_writer.standby.decision import ActiveState, Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRead:
    """One read of the manifest.

    ``begun_s``, ``ended_s``: on the monotonic clock.  ``is_closed``: the last writer has closed the database; known
    only of a manifest without a sign of life.  ``wal_id``: the last WAL file, if it was looked for.
    """

    manifest: Manifest
    begun_s: float
    ended_s: float
    is_closed: bool = False
    wal_id: int = 0


class Evidence:
    """Collects what was seen.

    ``observed``: the input of ``decide``.  ``status``: the writer of the newest epoch; ``None`` before the first read,
    and without a database.
    """

    def __init__(self, now_s: float) -> None:
        self.status: WriterStatus | None = None
        self.observed = Observed(
            state=ActiveState.UNSIGNED, alive_s=now_s, changed_s=now_s, challenged_s=None, read_s=now_s
        )
        self._place: tuple[int, ...] = ()
        self._sign: UUID | None = None
        self._challenge: UUID | None = None

    @property
    def epoch(self) -> int:
        """The newest epoch that was seen."""
        return 0 if self.status is None else self.status.epoch

    def saw_no_database(self, begun_s: float) -> None:
        """Record that there is no manifest."""
        self.observed = replace(self.observed, state=ActiveState.NONE, read_s=begun_s)

    def saw_manifest(self, read: ManifestRead) -> bool:
        """Record a manifest; return whether another writer has become the newest since the last one."""
        found, epoch_before = writer_status(read.manifest, now_ms=0), self.epoch
        is_new = self.status is None or found.epoch != epoch_before
        sign, place, seen = _sign_of(read.manifest, found), _place_of(read), self.observed
        if is_new or (sign is not None and sign != self._sign):
            seen = replace(seen, alive_s=read.ended_s, challenged_s=None)
        elif self._challenge is not None and read.manifest.checkpoint(self._challenge) is None:
            # It was removed without an answer, by hand or by GC: the writer may never have seen it.
            seen = replace(seen, challenged_s=None)
        if is_new or place != self._place:
            seen = replace(seen, changed_s=read.ended_s)
        state = _state_of(found, sign, is_closed=read.is_closed)
        self.observed = replace(seen, state=state, read_s=read.begun_s)
        self.status, self._sign, self._place = found, sign, place
        return is_new

    def saw_answer(self, epoch: int, asked_s: float) -> None:
        """Record an answer of the writer of ``epoch`` to a request that was sent at ``asked_s``.

        A challenge that is still in the manifest is answered there, too, but nothing waits for it any more.
        """
        if epoch == self.epoch and asked_s > self.observed.alive_s:
            self.observed = replace(self.observed, alive_s=asked_s, challenged_s=None)

    def challenged(self, challenge: UUID, written_s: float) -> None:
        """Record that a challenge is in the manifest since ``written_s``."""
        self._challenge = challenge
        self.observed = replace(self.observed, challenged_s=written_s)


def _sign_of(manifest: Manifest, status: WriterStatus) -> UUID | None:
    signs = [entry for entry in manifest.checkpoints if entry.writer_epoch == status.epoch]
    return max(signs, key=lambda entry: entry.manifest_id).id if signs else None


def _place_of(read: ManifestRead) -> tuple[int, ...]:
    """Return what only a writer moves: readers, coordinators and gc change the manifest of a dead writer, too."""
    manifest = read.manifest
    return read.wal_id, manifest.next_wal_sst_id, manifest.replay_after_wal_id, manifest.last_l0_seq


def _state_of(status: WriterStatus, sign: UUID | None, *, is_closed: bool) -> ActiveState:
    if status.epoch == 0:
        return ActiveState.NONE
    if sign is not None:
        return ActiveState.SIGNED
    return ActiveState.CLOSED if is_closed else ActiveState.UNSIGNED
