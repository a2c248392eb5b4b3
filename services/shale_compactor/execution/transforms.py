"""Transforms of rows in a job: merge operator and compaction filters."""

from shale.compaction.filters import NamedCompactionFilter
from shale.core.lazy_dataclass import dataclass
from shale.iter.merge_operator import MergeOperator
from shale.merge_operators import operator_by_name
from shale.plugins import COMPACTION_FILTERS, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Transforms:
    """The transforms of all jobs of a process.

    Args:
        operator: merges operands; must be the same in all processes of the database.
        operator_name: its name in errors.
        merge_passthrough: without an operator, keep operands unmerged; off: a job with operands fails.
        filters: called with each row that a job would write, one filter after the other.
    """

    operator: MergeOperator | None = None
    operator_name: str = ""
    merge_passthrough: bool = True
    filters: tuple[NamedCompactionFilter, ...] = ()


NO_TRANSFORMS = Transforms()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformNames:
    """Names of the transforms in the settings, from which any process can load them.

    Args:
        merge_operator: registered name or ``module:attribute``; ``None``: none.
        merge_passthrough: see ``Transforms``.
        compaction_filters: registered names or ``module:attribute``.
    """

    merge_operator: str | None = None
    merge_passthrough: bool = True
    compaction_filters: tuple[str, ...] = ()

    def load(self) -> Transforms:
        """Import the transforms.

        Raises:
            InvalidRequestError: a name is unknown, or its object cannot be used.
        """
        return Transforms(
            operator=None if self.merge_operator is None else operator_by_name(self.merge_operator),
            operator_name=self.merge_operator or "",
            merge_passthrough=self.merge_passthrough,
            filters=tuple(
                NamedCompactionFilter(name, resolve(COMPACTION_FILTERS, name)) for name in self.compaction_filters
            ),
        )
