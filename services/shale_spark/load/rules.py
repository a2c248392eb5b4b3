"""The rules of a load for the rows of a DataFrame: plain values that travel to every task."""

from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum

from shale.core.lazy_dataclass import dataclass
from shale.engine.load.manifest import LoadStamp
from shale.engine.location import DatabaseLocation
from shale.errors import InvalidRequestError
from shale.sst.options import SstOptions
from shale.types import Sst
from shale_spark.codecs import ValueCodec

KEY_BYTES_MAX = 65_535
VALUE_BYTES_MAX = 2**32 - 1
LIFETIME_MAX_MS = 1 << 62
"""The longest lifetime that a writer takes.  Larger times in a column, meant as "never", are reduced to it."""

KEY = "shale_key"
VALUE = "shale_value"
EXPIRE_MS = "shale_expire_ms"
"""The columns of a task: binary, binary, and milliseconds since 1970 where rows have their own expiry.  Where a codec
makes the values, the columns it takes replace ``VALUE``, under their own names.
"""

ORDER = "shale_order"
REASON = "shale_reason"
"""Columns on the way to tasks: which row of a key is wanted, and why a row cannot be stored."""

_OWN = frozenset({KEY, VALUE, EXPIRE_MS, ORDER, REASON})


def require_free_names(names: Iterable[str]) -> None:
    """Return if no column that a codec takes has the name of an internal column.

    Raises:
        InvalidRequestError: one has; names it.  Spark ignores the case of names.
    """
    for name in names:
        if name.lower() in _OWN:
            raise InvalidRequestError(
                f"column {name!r} has a reserved name: rename it, or name the columns of the value"
            )


class DuplicateKeys(StrEnum):
    """What to do with a key that occurs twice."""

    ERROR = "error"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """How rows are checked and stamped.

    ``ttl_ms`` counts from the load's commit time and holds for rows without an expiry of their own.  With
    ``DuplicateKeys.LAST`` the rows of a key come with the wanted one first.
    """

    stamp: LoadStamp
    duplicates: DuplicateKeys = DuplicateKeys.ERROR
    ttl_ms: int | None = None
    codec: ValueCodec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTaskPlan:
    """The plan of a task; the same for all tasks of a load."""

    where: DatabaseLocation
    rules: RowRules
    sst: SstOptions = field(default_factory=SstOptions)
    sst_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTaskResult:
    """The result of one task: SSTs in key order, durable, not yet in a manifest.

    ``rows``: stored ones; ``expired``: expired ones, stored or left out; ``repeated``: rows that another row of their
    key replaced; ``raw_bytes``: of keys and values.
    """

    ssts: tuple[Sst, ...] = ()
    rows: int = 0
    repeated: int = 0
    expired: int = 0
    raw_bytes: int = 0
