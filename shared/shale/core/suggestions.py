"""Errors for unknown names, which suggest the name that was meant."""

from collections.abc import Collection, Iterable, Mapping

from shale.errors import UnknownOption


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean …?`` for the closest known name, or an empty string."""
    from difflib import get_close_matches  # imported for errors only

    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def unknown_option(name: str, known: Iterable[str]) -> UnknownOption:
    """Return the error for a keyword that names no option."""
    return UnknownOption(f"{name}: no such option{suggest(name, known)}")


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
