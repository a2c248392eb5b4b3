"""Decides when point lookups use the compiled kernel.

Loading numba takes longer than hundreds of plain lookups, so the kernel is loaded after some use, in a thread, by the
task group of whoever owns the handle.  Without that task lookups stay plain and correct.
"""

from collections.abc import Callable

import anyio

from shale.env import Env

WARM_AFTER = 256
"""Plain lookups in SSTs before the kernel is worth loading."""

WARM_AFTER_ROWS = 8192
"""Rows in WAL files before the kernels are worth loading that encode them."""

Lookup = Callable[[bytes, int, int, int, int], int]
LookupValue = Callable[[bytes, int], bytes | int | None]
LookupMany = Callable[[list[bytes], list[bytes | int | None], int, int, int, int, int, int], int]


class HotPath:
    """``lookup`` is ``None`` until the kernel is loaded."""

    __slots__ = ("_rows", "_uses", "_wanted", "lookup", "lookup_many", "lookup_value")

    def __init__(self) -> None:
        self.lookup: Lookup | None = None
        self.lookup_value: LookupValue | None = None
        self.lookup_many: LookupMany | None = None
        self._rows = 0
        self._uses = 0
        self._wanted = anyio.Event()

    def note_plain_lookup(self) -> None:
        """Count one lookup that went without the kernel."""
        self._uses += 1
        if self._uses == WARM_AFTER:
            self._wanted.set()

    def note_plain_rows(self, count: int) -> None:
        """Count rows that were written without kernels, or so it may be: a few thousand, and they are worth loading."""
        self._rows += count
        if self._rows >= WARM_AFTER_ROWS:
            self._wanted.set()

    async def run(self, env: Env) -> None:
        """Wait until the kernel pays, then load it."""
        await self._wanted.wait()
        await env.cpu.load(self.load)

    def load(self) -> None:
        """Load the kernel now; takes up to a second, or some more if it was never compiled on this machine."""
        from shale.kernels.choice import load_kernels

        if load_kernels():
            from shale.kernels import lookup, lookup_many

            self.lookup_many = lookup_many.lookup_many
            self.lookup_value = lookup.lookup_value
            self.lookup = lookup.lookup
