"""Errors for unknown names and values, which suggest what was meant."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from shale.errors import InvalidRequestError, UnknownOption


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean …?`` for the closest known name, or an empty string."""
    from difflib import get_close_matches  # imported for errors only

    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def unknown_option(name: str, known: Iterable[str]) -> UnknownOption:
    """Return the error for a keyword that names no option."""
    names = tuple(known)
    if name in ("url", "uri") and "store" in names:  # the commands have it as an option
        return UnknownOption(f"{name}: no such option; give the URL as the first argument")
    return UnknownOption(f"{name}: no such option{suggest(name, names)}")


def invalid_choice(name: str, value: object, choices: Sequence[str]) -> InvalidRequestError:
    """Return the error for a value that is none of a few words.

    Args:
        name: the argument or setting.
        value: what was given.
        choices: all values that are allowed, at least two.
    """
    *first, last = (repr(str(each)) for each in choices)
    allowed = f"{', '.join(first)} or {last}"
    return InvalidRequestError(f"{name}={value!r}: must be {allowed}{suggest(str(value), choices)}")


def require_known(options: Mapping[str, object], known: Collection[str], parameters: Collection[str] = ()) -> None:
    """Check the names of what a call takes as ``**options``.

    Args:
        options: the options that were given.
        known: the names of all options.
        parameters: names of the call's other parameters, which may have been meant.

    Raises:
        UnknownOption: there is no option of that name.
    """
    for name in options:
        if name not in known:
            raise unknown_option(name, (*known, *parameters))


class KnownFields:
    """A dataclass of options: an unknown keyword raises ``UnknownOption``, with the name that was meant."""

    __slots__ = ()

    __dataclass_fields__: ClassVar[dict[str, Any]]
    unknown_hint: ClassVar[str] = ""
    """What the error says about a name that resembles no option."""

    def __new__(cls, *_: object, **keywords: object) -> Self:
        for name in keywords:
            if name not in cls.__dataclass_fields__:
                known = cls.unknown_hint or f"; it has {', '.join(cls.__dataclass_fields__)}"
                hint = suggest(name, cls.__dataclass_fields__) or known
                raise UnknownOption(f"{cls.__name__} has no option {name}{hint}")
        return super().__new__(cls)
