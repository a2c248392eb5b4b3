"""What a job does to rows beyond merging them: the operator and the filters that settings name."""

from dataclasses import dataclass

from shale.compaction.filters import NamedFilter
from shale.iter.merge_operator import MergeOperator
from shale.merge_operators import operator_called
from shale.plugins import COMPACTION_FILTERS, resolve


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformNames:
    """What settings say about transforms: enough to load them in another process.

    Args:
        merge_operator: registered name or ``module:attribute``.
        merge_passthrough: see ``Transforms``.
        compaction_filters: registered names or ``module:attribute``.
    """

    merge_operator: str | None = None
    merge_passthrough: bool = True
    compaction_filters: tuple[str, ...] = ()

    def load(self) -> Transforms:
        """Import what is named.

        Raises:
            InvalidRequestError: a name is unknown, or what it stands for cannot be used.
        """
        return Transforms(
            operator=None if self.merge_operator is None else operator_called(self.merge_operator),
            operator_name=self.merge_operator or "",
            merge_passthrough=self.merge_passthrough,
            filters=tuple(NamedFilter(name, resolve(COMPACTION_FILTERS, name)) for name in self.compaction_filters),
        )
