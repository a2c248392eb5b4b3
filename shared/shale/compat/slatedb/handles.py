"""What the classes of the binding have in common: most of them are not made by calling them."""

import asyncio
from typing import Self
from uuid import UUID

from shale.compat.slatedb.errors import invalid


class Handle:
    """An object that only other calls give out.

    Its home is the event loop in which it was made, if that matters.  Calls from other loops and threads are carried
    out there, so objects can be used from everywhere, as SlateDB's can, as long as that loop runs.
    """

    __slots__ = ("_home",)

    _home: asyncio.AbstractEventLoop | None

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise ValueError("This class has no default constructor")

    @property
    def _is_orphan(self) -> bool:
        """Whether its home is gone."""
        return self._home is not None and self._home.is_closed()

    @classmethod
    def _blank(cls) -> Self:
        blank = object.__new__(cls)
        blank._home = None
        return blank

    @classmethod
    def _blank_here(cls) -> Self:
        blank = object.__new__(cls)
        blank._home = asyncio.get_running_loop()
        return blank


class Once:
    """A builder: every call raises once it has built."""

    def __init__(self) -> None:
        self._is_used = False

    def _require_unused(self) -> None:
        if self._is_used:
            raise invalid("builder has already been consumed")

    def _use(self) -> None:
        self._require_unused()
        self._is_used = True


def lowered(value: int, name: str, bits: int) -> int:
    """A number that fits into so many bits without a sign.

    Raises:
        ValueError: it does not.
    """
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} requires 0 <= value < {1 << bits}")
    return value


def checkpoint_id_of(text: str) -> UUID:
    """The id of a checkpoint.

    Raises:
        Error: not a UUID.
    """
    try:
        return UUID(text)
    except ValueError as error:
        raise invalid(f"invalid checkpoint_id UUID: {error}") from error
