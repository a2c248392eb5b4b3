"""The base of the binding's classes, most of which have no public constructor."""

import asyncio
from typing import Self
from uuid import UUID

from shale.compat.slatedb.errors import invalid


class Handle:
    """An object that only other calls return.

    It remembers the event loop in which it was made, if that matters.  Calls from other loops and threads run in that
    loop, so objects can be used from everywhere, like SlateDB's, as long as that loop runs.
    """

    __slots__ = ("_loop",)

    _loop: asyncio.AbstractEventLoop | None

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise ValueError("This class has no default constructor")

    @property
    def _is_orphan(self) -> bool:
        """Whether its event loop is closed."""
        return self._loop is not None and self._loop.is_closed()

    @classmethod
    def _blank(cls) -> Self:
        blank = object.__new__(cls)
        blank._loop = None
        return blank

    @classmethod
    def _blank_here(cls) -> Self:
        blank = object.__new__(cls)
        blank._loop = asyncio.get_running_loop()
        return blank


class SingleUse:
    """A builder that raises in every call after it has built."""

    def __init__(self) -> None:
        self._is_used = False

    def _require_unused(self) -> None:
        if self._is_used:
            raise invalid("builder has already been consumed")

    def _use(self) -> None:
        self._require_unused()
        self._is_used = True


def unsigned(value: int, name: str, bits: int) -> int:
    """Return a number that fits into so many bits without a sign.

    Raises:
        ValueError: it does not.
    """
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} requires 0 <= value < {1 << bits}")
    return value


def parse_checkpoint_id(text: str) -> UUID:
    """Parse the id of a checkpoint.

    Raises:
        Error: not a UUID.
    """
    try:
        return UUID(text)
    except ValueError as error:
        raise invalid(f"invalid checkpoint_id UUID: {error}") from error
