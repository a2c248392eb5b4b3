"""One finding of a check: what is wrong, and where."""

from typing import Self

from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError, InvalidObjectState
from shale.sst.verify.codes import Code, Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """``object`` is a key in the store, ``offset`` the first byte of the damaged part, if it is known."""

    object: str
    what: str
    offset: int | None = None
    code: Code = Code.UNDECODABLE

    @classmethod
    def of(cls, error: CorruptionError, path: str) -> Self:
        """Return the finding of an error about the object at ``path``."""
        return cls(error.path or path, error.message or str(error), error.offset, _code_of(error))

    @property
    def severity(self) -> Severity:
        """The severity of the finding."""
        return self.code.severity

    def __str__(self) -> str:
        place = self.object if self.offset is None else f"{self.object} at byte {self.offset}"
        return f"{place}: {self.what}"


def _code_of(error: CorruptionError) -> Code:
    if isinstance(error, InvalidObjectState):
        return Code.BOUNDARY
    return Code.CHECKSUM if error.message.startswith("checksum mismatch") else Code.UNDECODABLE
