"""The tree of all errors; each branch tells the caller what to do.

ShaleError
├── ConflictError        another process wrote first: refresh, plan again, retry
│   ├── AlreadyExists, Precondition, TransactionConflict
│   └── ObjectVersionExists
│       └── ObjectVersionBehindBoundary
├── FencedError          a newer epoch owns this role: stop this process
├── UnavailableError     the store did not answer: back off and retry
│   └── ObjectUpdateTimeout, DeadlineExceeded
├── CorruptionError      stored bytes break the format or name what is missing: stop, keep path and offset
│   └── InvalidVersion, InvalidObjectState, ManifestMissing, WalTruncated, SstMissing, FeedGap
├── NotFoundError        what was asked for is not there
│   └── LatestRecordMissing, CheckpointMissing (CheckpointExpired)
├── InvalidRequestError  an impossible call or setting (also a ValueError): fix the caller
│   ├── UnknownOption, WrongType (also TypeErrors), NotOpen (also an AttributeError)
│   ├── AccessDenied, StoreUnsafe, InvalidDbState (UnknownCheckpoint), AmbiguousCheckpoint, InvalidDeletion, …
│   └── ManifestNeedsVersion2, InvalidUnion, InvalidProjection, CloneExternalDbMissing, …
├── ClosedError          the handle is closed: open a new one
└── ProtocolPanic        an invariant is broken: write nothing more, end the process

``kind`` is the public error kind of SlateDB for the same condition (docs/reference/protocol.md 0.5).
"""

from collections.abc import Sequence
from enum import StrEnum
from time import gmtime, strftime

_IDS_SHOWN_MAX = 20


class ErrorKind(StrEnum):
    """The name of a condition in the public interface of SlateDB."""

    TRANSACTION = "transaction"
    CLOSED_CLEAN = "closed:clean"
    CLOSED_FENCED = "closed:fenced"
    UNAVAILABLE = "unavailable"
    INVALID = "invalid"
    DATA = "data"
    INTERNAL = "internal"


class ShaleError(Exception):
    """The root of the tree.  ``retryable``: the same call may succeed later without a change by the caller."""

    kind: ErrorKind = ErrorKind.INTERNAL
    retryable: bool = False


class ConflictError(ShaleError):
    """Another process wrote first."""

    kind = ErrorKind.DATA
    retryable = True


class AlreadyExists(ConflictError):
    """A conditional create met an object."""


class Precondition(ConflictError):
    """A conditional update met another version of the object, or none."""


class TransactionConflict(ConflictError):
    """A transaction met a newer commit; only that call fails."""

    kind = ErrorKind.TRANSACTION


class ObjectVersionExists(ConflictError):
    """A sequenced create lost against another process."""


class ObjectVersionBehindBoundary(ObjectVersionExists):
    """A sequenced file was created at or below the boundary of its namespace, so it is not committed."""

    def __init__(self, id: int, boundary: int, resource: str = "") -> None:  # noqa: A002 - the protocol's name
        super().__init__(f"{resource or 'object'} {id} is at or behind the boundary {boundary}")
        self.id = id
        self.boundary = boundary


ONE_WRITER = (
    "a database has one writer: let other processes write through its HTTP API (shale writer), and read with DbReader"
)
"""What to do when writers fence each other."""


class FencedError(ShaleError):
    """A newer epoch owns this role."""

    kind = ErrorKind.CLOSED_FENCED


class UnavailableError(ShaleError):
    """The store did not answer."""

    kind = ErrorKind.UNAVAILABLE
    retryable = True


class WriteStalled(UnavailableError):
    """A write waited for longer than ``stall_timeout``, because memtables cannot be flushed; nothing was written."""


class ObjectUpdateTimeout(UnavailableError):
    """An update of a sequenced object did not get through in time."""


class DeadlineExceeded(UnavailableError):
    """The deadline that the caller set has passed."""


class CorruptionError(ShaleError):
    """Stored bytes break the format.  ``path`` names the object, ``offset`` the first byte at fault, if known."""

    kind = ErrorKind.DATA

    def __init__(self, message: str, *, path: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        place = self.path or ""
        if self.offset is not None:
            place += f" at byte {self.offset}"
        return f"{place.strip()}: {self.message}" if place else self.message

    def at(self, path: str) -> "CorruptionError":
        """Return this error with the path of the object, unless it has one."""
        if self.path is None:
            self.path = path
        return self


class InvalidVersion(CorruptionError):
    """The object has a format version that this release does not know."""


class InvalidObjectState(CorruptionError):
    """An object that coordinates processes holds something impossible."""


class ManifestMissing(CorruptionError):
    """A manifest version that something refers to is gone."""

    def __init__(self, id: int) -> None:  # noqa: A002 - the protocol's name
        super().__init__(f"manifest {id} is referenced but gone")
        self.id = id


class WalTruncated(CorruptionError):
    """A WAL file that replay needs is gone; ``files`` names all such files, if there are several."""

    def __init__(self, id: int, why: str = "", *, path: str | None = None, files: str = "") -> None:  # noqa: A002
        what = f"WAL files {files} are needed but gone" if files else f"WAL file {id} is needed but gone"
        super().__init__(f"{what}: {why}" if why else what, path=path)
        self.id = id


class SstMissing(CorruptionError):
    """An SST that the manifest names is missing: lost, or removed by GC if a newer manifest does not name it."""

    def __init__(self, id: str, path: str) -> None:  # noqa: A002 - the protocol's name
        super().__init__(
            "the object does not exist, but a manifest names it; if GC removed it during a scan without a checkpoint "
            "(follow_latest), refresh and start another scan after the last row, or read with a checkpoint",
            path=path,
        )
        self.id = id


class FeedGap(CorruptionError):
    """The WAL no longer holds changes that a feed has yet to return, or never held them."""


class NotFoundError(ShaleError):
    """What was asked for is not there."""

    kind = ErrorKind.DATA


class LatestRecordMissing(NotFoundError):
    """There is no manifest, or no compactions file, where one is required."""


class CheckpointMissing(NotFoundError):
    """The latest manifest lists no such checkpoint.  ``id`` may also be the requested name, ``hint`` what was meant."""

    def __init__(self, id: object, hint: str = "") -> None:  # noqa: A002 - the protocol's name
        what = f"no checkpoint is named {id!r}" if isinstance(id, str) else f"checkpoint {id} does not exist"
        super().__init__(f"{what}{hint}")
        self.id = id


class CheckpointExpired(CheckpointMissing):
    """The checkpoint is still listed, but it has expired, so nothing protects its state any more.

    Args:
        id: its id, or the requested name.
        expire_s: when it expired, in seconds since 1970; of several with one name, the last.
    """

    def __init__(self, id: object, expire_s: int) -> None:  # noqa: A002 - the protocol's name
        super().__init__(id)
        self.expire_s = expire_s
        what = f"the checkpoint named {id!r}" if isinstance(id, str) else f"checkpoint {id}"
        self.args = (f"{what} expired at {strftime('%Y-%m-%dT%H:%M:%SZ', gmtime(expire_s))}",)


class InvalidRequestError(ShaleError, ValueError):
    """An impossible call or setting; as for any unusable value, this is also a ``ValueError``."""

    kind = ErrorKind.INVALID


class WrongType(InvalidRequestError, TypeError):
    """A value of a type that the call does not take, or an object used in a way that it does not support."""


class NotOpen(InvalidRequestError, AttributeError):
    """A method of a handle was called on what ``open`` returned, which was neither awaited nor entered."""


class UnknownOption(InvalidRequestError, TypeError):
    """A call got a keyword that names no option; as for any unknown keyword, this is also a ``TypeError``."""


class ResponseTooLarge(InvalidRequestError):
    """The values of a request together exceed the size that the caller accepts."""


class AccessDenied(InvalidRequestError):
    """The store refused the credentials."""

    kind = ErrorKind.UNAVAILABLE


class StoreUnsafe(InvalidRequestError):
    """The store fails the conditional-write check, so two processes could win the same commit."""


class InvalidDbState(InvalidRequestError):
    """The state of the database does not allow the call: not initialised, destroyed, or without what it needs."""

    kind = ErrorKind.DATA


class ManifestNeedsVersion2(InvalidDbState):
    """A manifest holds what version 1 of the format cannot, but ``manifest.write_version`` is 1."""


class UnknownCheckpoint(InvalidDbState):
    """The checkpoint to change does not exist; commands and HTTP report it as not found."""

    def __init__(self, id: object) -> None:  # noqa: A002 - the protocol's name
        super().__init__(f"the database has no checkpoint {f'named {id!r}' if isinstance(id, str) else id}")
        self.id = id


class AmbiguousCheckpoint(InvalidRequestError):
    """Several checkpoints have the requested name.  ``ids``: theirs, in the order of the list."""

    def __init__(self, name: str, ids: Sequence[object]) -> None:
        shown = [str(each) for each in ids[:_IDS_SHOWN_MAX]]
        more = [f"and {len(ids) - len(shown)} more"] if len(ids) > len(shown) else []
        super().__init__(f"{len(ids)} checkpoints are named {name!r}, name one by its id: {', '.join([*shown, *more])}")
        self.ids = tuple(ids)


class InvalidDeletion(InvalidRequestError):
    """The object is still needed."""


class InvalidCompaction(InvalidRequestError):
    """A compaction breaks one of the rules V1–V13.  ``rule`` names it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


class WalDisabled(InvalidRequestError):
    """A WAL flush was asked for while the WAL is off."""


class InvalidSequenceNumber(InvalidRequestError):
    """A sequence number given by the caller is not above the last one."""


class InvalidClockTick(InvalidRequestError):
    """The clock went back further than the writer waits."""


class InvalidCheckpointLifetime(InvalidRequestError):
    """A checkpoint lifetime that cannot be stored or kept alive."""


class CheckpointLifetimeTooShort(InvalidRequestError):
    """A reader would lose its checkpoint between two polls."""


class InvalidManifestPollInterval(InvalidRequestError):
    """A poll interval of zero or less."""


class SegmentExtractorMismatch(InvalidRequestError):
    """The database was made with another segment extractor, or with none."""


class SegmentPrefixNotRecognized(InvalidRequestError):
    """The extractor does not know a prefix that the manifest holds."""


class InvalidSegmentPrefix(InvalidRequestError):
    """A segment prefix would nest with another one."""


class EmptySegmentPrefix(InvalidRequestError):
    """The extractor gave no prefix for a key."""


class MergeOperatorMissing(InvalidRequestError):
    """A merge operand was met and no operator is configured."""


class MergeOperatorFailed(InvalidRequestError):
    """The merge operator raised, or returned something other than bytes."""


class IncompatibleMergeTtls(InvalidRequestError):
    """A batch merges a key with several lifetimes, which one row cannot represent."""


class CompactionFilterFailed(InvalidRequestError):
    """A compaction filter raised, or returned an invalid decision."""

    kind = ErrorKind.INTERNAL


class CloneExternalDbMissing(InvalidRequestError):
    """The database at the path of the clone is not a clone: it uses no SSTs of another database."""

    kind = ErrorKind.DATA


class CloneIncorrectExternalDbCheckpoint(InvalidRequestError):
    """The existing clone was made of another source, or of another checkpoint of it."""

    kind = ErrorKind.DATA


class CloneIncorrectFinalCheckpoint(InvalidRequestError):
    """A database that owns SSTs of the clone no longer has the clone's checkpoint."""

    kind = ErrorKind.DATA


class IdenticalClonePaths(InvalidRequestError):
    """A clone and its source are at the same path, or one inside the other."""


class DuplicatedCloneSourcePath(InvalidRequestError):
    """A clone names the same source twice."""


class InvalidCloneSourceWithWal(InvalidRequestError):
    """Rows of a source are only in its WAL, where they cannot be projected or united."""


class InvalidUnionSetEmpty(InvalidRequestError):
    """A clone needs at least one source."""


class InvalidUnion(InvalidRequestError):
    """The sources cannot be one database."""


class InvalidProjection(InvalidRequestError):
    """The range for a segment is empty, or extends beyond the segment."""


class ClosedError(ShaleError):
    """The handle is closed."""

    kind = ErrorKind.CLOSED_CLEAN


class ProtocolPanic(ShaleError):
    """An invariant is broken and the process must write nothing more.  ``state`` is for the log."""

    def __init__(self, invariant: str, **state: object) -> None:
        super().__init__(f"{invariant} {state}" if state else invariant)
        self.invariant = invariant
        self.state = state
