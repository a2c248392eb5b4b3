"""``repr`` of handles: their state as one line, and as a table in a notebook."""

from collections.abc import Mapping
from html import escape


class ShowsState:
    """An object whose ``repr`` shows its state.

    Neither form raises, waits or reads the store: a debugger and a notebook call them at any time, also in other
    threads and on handles that are half open.
    """

    __slots__ = ()

    def _shown_state(self) -> Mapping[str, object]:
        """Return what to show, by name, from memory; the class of a handle implements it."""
        return {}

    def _shown_class(self) -> str:
        """Return the name of the class, as a program writes it."""
        return f"shale.{type(self).__name__}"

    def __repr__(self) -> str:
        state = state_of(self)
        return f"<{self._shown_class()}{''.join(f' {name}={_text(value)}' for name, value in state.items())}>"

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><th style='text-align: left'>{escape(name)}</th><td>{escape(_text(value))}</td></tr>"
            for name, value in state_of(self).items()
        )
        return f"<table><caption>{escape(self._shown_class())}</caption>{''.join(rows)}</table>"


def state_of(handle: ShowsState) -> Mapping[str, object]:
    """Return the state of a handle; one that cannot be told is shown as unknown."""
    try:
        return handle._shown_state()
    except Exception as error:  # noqa: BLE001 - a handle may be half open, or changed by another thread meanwhile
        return {"state": f"unknown: {type(error).__name__}"}


def _text(value: object) -> str:
    try:
        return value if isinstance(value, str) else repr(value)
    except Exception as error:  # noqa: BLE001 - the repr of an object of the caller
        return f"unknown: {type(error).__name__}"
