"""Interfaces that programs implement, merge operators and prefix extractors, and their adapters for the engine."""

from collections.abc import Sequence
from dataclasses import dataclass

from shale.compat.slatedb.handles import Handle
from shale.compat.slatedb.types.enums import PrefixTarget
from shale.iter.merge_operator import MergeOperator as EngineOperator


class MergeOperator:
    """Folds merge operands; subclass it."""

    def merge(self, key: bytes, existing_value: bytes | None, operand: bytes) -> bytes:
        """Return the value after one more operand."""
        raise NotImplementedError


class MergeOperatorImpl(Handle, MergeOperator):
    """A merge operator of the binding itself; it gives out none."""


class PrefixExtractor:
    """Divides keys into a prefix and the rest; subclass it."""

    def name(self) -> str:
        """Return the name of the rule, which is stored in the database."""
        raise NotImplementedError

    def prefix_len(self, target: PrefixTarget) -> int | None:
        """Return the length of the prefix of a key, or of all keys with a prefix; ``None`` if there is none."""
        raise NotImplementedError


class PrefixExtractorImpl(Handle, PrefixExtractor):
    """A prefix extractor of the binding itself; it gives out none."""


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
        """See ``shale.format.sst.filter_policy.PrefixExtractor``."""
        return self.extractor.prefix_len(PrefixTarget.POINT(key))

    def scan_prefix_len(self, prefix: bytes) -> int | None:
        """See ``shale.format.sst.filter_policy.PrefixExtractor``."""
        return self.extractor.prefix_len(PrefixTarget.PREFIX(prefix))


def engine_operator(operator: MergeOperator) -> EngineOperator:
    """Convert a program's operator, which takes one operand at a time, to the engine's, which takes many."""

    def merge(key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
        for operand in operands:
            existing = operator.merge(key, existing, bytes(operand))
        assert existing is not None, "without operands nothing is merged"
        return existing

    merge.__qualname__ = type(operator).__qualname__  # errors name it
    return merge
