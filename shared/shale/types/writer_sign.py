"""The sign of life of a writer: the name and the times of its own checkpoint.

It tells people and programs who writes, since when and where.  It is for convenience, never for safety: only the epoch
decides who may write.

A standby that sees no other evidence of the writer adds a checkpoint of its own, a challenge.  A writer that is alive
answers it within a poll: it replaces its sign, and removes the challenge.

Source: docs/reference/protocol.md 9.1.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple, Self
from urllib.parse import parse_qsl, urlencode

from shale.core.lazy_dataclass import dataclass
from shale.types.ids import Epoch
from shale.types.manifest import Checkpoint, Manifest

_DIGITS = re.compile(r"[0-9]{1,19}")
_CHALLENGE = re.compile(r"standby:([0-9]{1,19})(?:\?.*)?", re.DOTALL)


class WriterPresence(StrEnum):
    """What a manifest tells about the writer of its epoch.

    ``NONE``: no writer ever opened the database.
    ``SIGNED``: its checkpoint is live, so it was alive at most one lifetime of the checkpoint ago.
    ``SILENT``: its checkpoint is listed but has expired: it crashed, or cannot reach the store.
    ``UNKNOWN``: it has no checkpoint: it closed, is a SlateDB process, runs without ``writer_checkpoint``, or went
    silent so long ago that GC removed the checkpoint.
    """

    NONE = "none"
    SIGNED = "signed"
    SILENT = "silent"
    UNKNOWN = "unknown"


REPLACED_WORKERS_MAX = 4
"""So many compactors would have to die between their claim and their first plan for a job to wait for its timeout."""


class EmbeddedCompactor(NamedTuple):
    """The compactor in the process of a writer.

    ``epoch``: the epoch that it has claimed.  ``worker_id``: of its worker; empty if a release before has signed it.
    ``replaced_workers``: of the compactors that it has replaced, the last one first.  Their jobs are free once its
    first plan is stored; it may die before.
    """

    epoch: int
    worker_id: str
    replaced_workers: tuple[str, ...] = ()

    def replaced_by(self, epoch: int, worker_id: str) -> "EmbeddedCompactor":
        """Return the compactor that claims after this one; with this one's worker id, it is this one once more."""
        gone = (self.worker_id, *self.replaced_workers)
        kept = tuple(name for name in dict.fromkeys(gone) if name not in {"", worker_id})
        return EmbeddedCompactor(epoch, worker_id, kept[:REPLACED_WORKERS_MAX])


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterIdentity:
    """What a writer tells about itself.

    Args:
        holder: an id of this opening of the database.
        host: the host's name.
        since_s: when it became the writer, in seconds since 1970.
        endpoint: URL at which it serves the database; ``None`` for one that does not.
        compactor: the compactor in its process; until that claims an epoch, the one of the writer that it replaced.
    """

    holder: str
    host: str
    since_s: int
    endpoint: str | None = None
    compactor: EmbeddedCompactor | None = None

    def checkpoint_name(self, epoch: Epoch) -> str:
        """Return the name of the checkpoint of this writer."""
        fields = {
            "holder": self.holder,
            "host": self.host,
            "since": str(self.since_s),
            "endpoint": self.endpoint or "",
            "compactor": "" if self.compactor is None else str(self.compactor.epoch),
            "worker": "" if self.compactor is None else self.compactor.worker_id,
            "replaced": "" if self.compactor is None else ",".join(self.compactor.replaced_workers),
        }
        return f"writer:{epoch}?{urlencode({name: text for name, text in fields.items() if text}, safe=',')}"

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """Read the name of a writer's checkpoint; what it does not tell is empty."""
        fields = dict(parse_qsl((checkpoint.name or "").partition("?")[2]))
        since, epoch = _number(fields.get("since", "")), _number(fields.get("compactor", ""))
        return cls(
            holder=fields.get("holder", ""),
            host=fields.get("host", ""),
            since_s=checkpoint.create_s if since is None else since,
            endpoint=fields.get("endpoint"),
            compactor=None if epoch is None else _compactor_of(epoch, fields),
        )


def _compactor_of(epoch: int, fields: Mapping[str, str]) -> EmbeddedCompactor:
    replaced = tuple(name for name in fields.get("replaced", "").split(",") if name)
    return EmbeddedCompactor(epoch, fields.get("worker", ""), replaced[:REPLACED_WORKERS_MAX])


def _number(text: str) -> int | None:
    """Return a number of a name, which any process may have written; ``None`` if it is none of 64 bits."""
    return int(text) if _DIGITS.fullmatch(text) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterStatus:
    """The writer of the newest epoch, as its manifest shows it.

    Args:
        presence: whether it has given a sign of life.
        epoch: the newest epoch.
        identity: what its sign of life tells; ``None`` without one.
        seen_s: when it gave the sign, in seconds since 1970 of its own clock.
        expire_s: when the sign expires.
    """

    presence: WriterPresence
    epoch: Epoch
    identity: WriterIdentity | None = None
    seen_s: int | None = None
    expire_s: int | None = None


def writer_status(manifest: Manifest, now_ms: int) -> WriterStatus:
    """Return what a manifest tells about its writer; signs of older epochs do not count."""
    epoch = manifest.writer_epoch
    signs = [entry for entry in manifest.checkpoints if entry.writer_epoch == epoch]
    if not signs:
        return WriterStatus(presence=WriterPresence.UNKNOWN if epoch else WriterPresence.NONE, epoch=epoch)
    newest = max(signs, key=lambda entry: entry.manifest_id)
    return WriterStatus(
        presence=WriterPresence.SILENT if newest.is_expired(now_ms) else WriterPresence.SIGNED,
        epoch=epoch,
        identity=WriterIdentity.of(newest),
        seen_s=newest.create_s,
        expire_s=newest.expire_s,
    )


def with_embedded_compactor(manifest: Manifest, compactor: EmbeddedCompactor) -> Manifest:
    """Return the manifest of a claim by the compactor in the writer's process: the writer's sign tells it.

    A writer without a checkpoint has no sign, and nothing changes.
    """

    def signed(entry: Checkpoint) -> Checkpoint:
        if entry.writer_epoch != manifest.writer_epoch:
            return entry
        identity = replace(WriterIdentity.of(entry), compactor=compactor)
        return replace(entry, name=identity.checkpoint_name(manifest.writer_epoch))

    return replace(manifest, checkpoints=tuple(map(signed, manifest.checkpoints)))


def embedded_compactor(manifest: Manifest) -> EmbeddedCompactor | None:
    """Return the compactor in the process of the newest writer that has a sign, or of one that it replaced.

    The next writer's claim inherits it, so it is known that this compactor ends with a writer that is fenced.
    """
    told = [
        (each.writer_epoch, sign.compactor)
        for each in manifest.checkpoints
        if each.writer_epoch is not None and (sign := WriterIdentity.of(each)).compactor is not None
    ]
    return max(told)[1] if told else None


def challenge_name(epoch: Epoch, host: str) -> str:
    """Return the name of a challenge to the writer of an epoch; ``host``: of the standby, for people."""
    return f"standby:{epoch}?{urlencode({'host': host})}"


def challenged_epoch(checkpoint_name: str | None) -> Epoch | None:
    """Return the epoch whose writer a checkpoint challenges; ``None`` for all other checkpoints."""
    match = None if checkpoint_name is None else _CHALLENGE.fullmatch(checkpoint_name)
    return None if match is None else Epoch(int(match[1]))


def is_challenged(manifest: Manifest, epoch: int) -> bool:
    """Whether a standby waits for an answer of the writer of this epoch."""
    return any(challenged_epoch(entry.name) == epoch for entry in manifest.checkpoints)


def without_challenges(manifest: Manifest, through_epoch: int) -> Manifest:
    """Return the manifest without the challenges of writers up to this epoch."""
    kept = tuple(
        entry
        for entry in manifest.checkpoints
        if (epoch := challenged_epoch(entry.name)) is None or epoch > through_epoch
    )
    return manifest if len(kept) == len(manifest.checkpoints) else replace(manifest, checkpoints=kept)
