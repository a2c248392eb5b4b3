"""What a job does to rows beyond merging them: the operator and the filters that settings name."""

from collections.abc import Sequence
from dataclasses import dataclass

from shale.compaction.filters import NamedFilter
from shale.iter.merge_operator import MergeOperator
from shale.service.plugins import COMPACTION_FILTERS, MERGE_OPERATORS, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Transforms:
    """The same for all jobs of a process.

    Args:
        operator: folds merge operands; it must be the one that every process of the database uses.
        operator_name: what errors call it.
        merge_passthrough: without an operator, operands are kept as they are; off: a job that meets one fails.
        filters: see every row that a job would write, one filter after the other.
    """

    operator: MergeOperator | None = None
    operator_name: str = ""
    merge_passthrough: bool = True
    filters: tuple[NamedFilter, ...] = ()


NO_TRANSFORMS = Transforms()


def load_transforms(
    *, merge_operator: str | None, merge_passthrough: bool, compaction_filters: Sequence[str]
) -> Transforms:
    """Import what settings name.

    Raises:
        InvalidRequestError: a name is unknown, or what it stands for cannot be used.
    """
    return Transforms(
        operator=None if merge_operator is None else resolve(MERGE_OPERATORS, merge_operator),
        operator_name=merge_operator or "",
        merge_passthrough=merge_passthrough,
        filters=tuple(NamedFilter(name, resolve(COMPACTION_FILTERS, name)) for name in compaction_filters),
    )
