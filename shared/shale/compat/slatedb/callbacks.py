"""What programs implement: merge operators and prefix extractors, and how the engine calls them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from shale.compat.slatedb.choices import PrefixTarget
from shale.iter.merge_operator import MergeOperator as EngineOperator


class MergeOperator(ABC):
    """Folds merge operands; subclass it."""

    @abstractmethod
    def merge(self, key: bytes, existing_value: bytes | None, operand: bytes) -> bytes:
        """The value after one more operand."""


class PrefixExtractor(ABC):
    """Cuts keys into a prefix and the rest; subclass it."""

    @abstractmethod
    def name(self) -> str:
        """Names the rule; stored in the database."""

    @abstractmethod
    def prefix_len(self, target: PrefixTarget) -> int | None:
        """The length of the prefix of a key, or of all keys that begin so; ``None`` if there is none."""


@dataclass(frozen=True, slots=True)
class NamedExtractor:
    """A program's extractor as the engine's."""

    extractor: PrefixExtractor
    name: str

    @classmethod
    def of(cls, extractor: PrefixExtractor) -> "NamedExtractor":
        """Ask for the name once."""
        return cls(extractor, extractor.name())

    def prefix_len(self, key: bytes) -> int | None:
        """See ``shale.format.bloom.PrefixExtractor``."""
        return self.extractor.prefix_len(PrefixTarget.POINT(key))

    def scan_prefix_len(self, prefix: bytes) -> int | None:
        """See ``shale.format.bloom.PrefixExtractor``."""
        return self.extractor.prefix_len(PrefixTarget.PREFIX(prefix))


def engine_operator(operator: MergeOperator) -> EngineOperator:
    """A program's operator, which sees one operand at a time, as the engine's, which sees many."""

    def merge(key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
        for operand in operands:
            existing = operator.merge(key, existing, bytes(operand))
        assert existing is not None, "without operands nothing is merged"
        return existing

    merge.__qualname__ = type(operator).__qualname__  # errors name it
    return merge
