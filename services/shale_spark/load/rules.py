"""What a load makes of the rows of a DataFrame: plain values that travel to every task."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from shale.engine.bulk_load import LoadStamp
from shale.engine.where import Where
from shale.errors import InvalidRequestError
from shale.sst.options import SstOptions
from shale.types import Sst
from shale_spark.codecs import ValueCodec

KEY_BYTES_MAX = 65_535
VALUE_BYTES_MAX = 2**32 - 1
LIFETIME_MAX_MS = 1 << 62
"""A writer takes no longer one.  Whoever means "never" with a large time in a column gets this."""

KEY = "shale_key"
VALUE = "shale_value"
EXPIRE_MS = "shale_expire_ms"
"""The columns that tasks get: binary, binary, and milliseconds since 1970 where rows bring their own expiry.  Where a
codec makes the values, the columns it takes stand in place of ``VALUE``, under their own names."""

ORDER = "shale_order"
REASON = "shale_reason"
"""Columns on the way to tasks: which row of a key is wanted, and why a row is put aside."""

_OWN = frozenset({KEY, VALUE, EXPIRE_MS, ORDER, REASON})


def require_free_names(names: Iterable[str]) -> None:
    """Return if no column that a codec takes could be mistaken for one of ours.

    Raises:
        InvalidRequestError: one could; names it.  To Spark capitals make no other name.
    """
    for name in names:
        if name.lower() in _OWN:
            raise InvalidRequestError(
                f"column {name!r} has a name that loads use themselves: rename it, or name the columns of the value"
            )


class Duplicates(StrEnum):
    """What happens to a key that occurs twice."""

    ERROR = "error"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """How rows are judged and stamped.

    ``ttl_ms`` counts from the load's commit time and holds for rows without an expiry of their own.  With
    ``Duplicates.LAST`` the rows of a key come with the wanted one first.
    """

    stamp: LoadStamp
    duplicates: Duplicates = Duplicates.ERROR
    ttl_ms: int | None = None
    codec: ValueCodec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlan:
    """All that a task has to know; the same for all tasks of a load."""

    where: Where
    rules: RowRules
    sst: SstOptions = field(default_factory=SstOptions)
    sst_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one task has written: SSTs by key, durable, and named by nobody yet.

    ``rows``: stored ones; ``expired``: of these or left out, those that had expired; ``repeated``: rows that another
    row of their key has replaced; ``raw_bytes``: of keys and values.
    """

    ssts: tuple[Sst, ...] = ()
    rows: int = 0
    repeated: int = 0
    expired: int = 0
    raw_bytes: int = 0
