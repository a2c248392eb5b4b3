"""The record of one compaction: what the compactions file has no field for, or keeps for a short time only.

Kind, attempts, times and error text are in a small object of Shale's own, one for each compaction.  A coordinator of
SlateDB that decodes and encodes the compactions file again cannot drop them (docs/reference/protocol.md 6.16).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, TypeAlias

from shale.compaction.requests import Sources, Spec, parse_request, request_json
from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError, InvalidRequestError
from shale.types import CompactionSpec, CompactionStatus, TieredSpec, Ulid

ATTEMPTS_KEPT_MAX = 50
ERROR_CHARS_MAX = 1000
_FORMAT = 1
_ATTEMPT = ("worker_id", "ended_ms", "result", "outputs", "error")
_COUNTS = ("attempts_count", "spent", "not_before_ms", "output_ssts", "output_bytes")
_PLAIN = (*_COUNTS, "kind", "started_ms", "finished_ms", "error")


class CompactionKind(StrEnum):
    """Who asked for a compaction: the coordinator's own policy, or a request."""

    INTERNAL = "internal"
    EXTERNAL = "external"


class AttemptResult(StrEnum):
    """How an attempt ended: it raised an error, or its worker sent no heartbeat any more."""

    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt that did not succeed.

    Args:
        outputs: finished SSTs that the next attempt keeps.
    """

    worker_id: str
    ended_ms: int
    result: AttemptResult
    outputs: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRecord:
    """All that is known of one compaction.  Times are milliseconds since 1970; ``None``: not known.

    Args:
        spec: ``None`` until the first process that knows it has written it.
        status: Completed or Failed, once it has ended.
        spent: attempts that count towards ``max_job_attempts``.
        not_before_ms: no worker claims it before.
        retry_of: the failed compaction that this one repeats.
    """

    id: Ulid
    spec: CompactionSpec | None = None
    kind: CompactionKind | None = None
    status: CompactionStatus | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    attempts: tuple[Attempt, ...] = ()
    attempts_count: int = 0
    spent: int = 0
    not_before_ms: int = 0
    error: str | None = None
    output_ssts: int = 0
    output_bytes: int = 0
    retry_of: Ulid | None = None

    def with_attempt(self, attempt: Attempt, *, not_before_ms: int = 0) -> "CompactionRecord":
        """Add an attempt.  One whose worker was lost does not count if it left new output: it will end."""
        before = self.attempts[-1].outputs if self.attempts else 0
        counts = attempt.result is AttemptResult.FAILED or attempt.outputs <= before
        error = None if attempt.error is None else attempt.error[:ERROR_CHARS_MAX]
        return replace(
            self,
            attempts=(*self.attempts, replace(attempt, error=error))[-ATTEMPTS_KEPT_MAX:],
            attempts_count=self.attempts_count + 1,
            spent=self.spent + counts,
            not_before_ms=not_before_ms,
        )

    def ended(self, status: CompactionStatus, finished_ms: int, error: str | None = None) -> "CompactionRecord":
        """Return the record of the ended compaction."""
        text = None if error is None else error[:ERROR_CHARS_MAX]
        return replace(self, status=status, finished_ms=finished_ms, error=text)


_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
RecordChange: TypeAlias = Callable[[CompactionRecord], CompactionRecord]


def encode_record(record: CompactionRecord) -> bytes:
    """Return the stored form: one JSON object."""
    fields: dict[str, object] = {name: getattr(record, name) for name in _PLAIN}
    fields["attempts"] = [{name: getattr(each, name) for name in _ATTEMPT} for each in record.attempts]
    fields["id"] = str(record.id)
    fields["retry_of"] = None if record.retry_of is None else str(record.retry_of)
    fields["spec"] = None if record.spec is None else request_json(Spec(record.spec))
    fields["status"] = None if record.status is None else record.status.name.lower()
    return json.dumps({"format": _FORMAT, **fields}).encode()


def decode_record(data: BytesLike, *, path: str) -> CompactionRecord:
    """Read what ``encode_record`` writes; fields that a later release adds are ignored.

    Raises:
        CorruptionError: not this JSON, or a format that this release does not know.
    """
    try:
        fields = json.loads(bytes(data))
        if fields["format"] != _FORMAT:
            raise CorruptionError(f"format {fields['format']!r} of the record is not known", path=path)
        return _record(fields)
    except (*_MALFORMED, InvalidRequestError) as error:
        raise CorruptionError(f"not the record of a compaction: {error!r}", path=path) from error


def _record(fields: Mapping[str, Any]) -> CompactionRecord:
    attempts = tuple(
        Attempt(
            worker_id=str(each["worker_id"]),
            ended_ms=int(each["ended_ms"]),
            result=AttemptResult(each["result"]),
            outputs=int(each["outputs"]),
            error=each["error"],
        )
        for each in fields["attempts"]
    )
    status, kind, retry_of = fields["status"], fields["kind"], fields["retry_of"]
    counts = {name: int(fields[name]) for name in _COUNTS}
    return CompactionRecord(
        id=_ulid(fields["id"]),
        spec=None if fields["spec"] is None else _spec(fields["spec"]),
        kind=None if kind is None else CompactionKind(kind),
        status=None if status is None else CompactionStatus[status.upper()],
        started_ms=fields["started_ms"],
        finished_ms=fields["finished_ms"],
        attempts=attempts,
        error=fields["error"],
        retry_of=None if retry_of is None else _ulid(retry_of),
        **counts,
    )


def _ulid(text: str) -> Ulid:
    found = Ulid.parse(text)
    if found is None:
        raise ValueError(f"{text!r} is not a ULID")
    return found


def _spec(value: object) -> CompactionSpec:
    request = parse_request(value)
    if not isinstance(request, Spec):
        raise TypeError(f"{request!r} is not a spec")
    return request.spec


def request_again(spec: CompactionSpec) -> Spec | Sources:
    """Return the request for the same sources; the id of a new run is chosen again, because ids only grow."""
    if isinstance(spec, TieredSpec) and not spec.sorted_runs:
        return Sources(l0_view_ids=spec.l0_view_ids, segment=spec.segment)
    return Spec(spec)
