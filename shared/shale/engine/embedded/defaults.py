"""Whether writers of this process run services, unless their options say it (``shale.configure``)."""

from dataclasses import replace

from shale.engine.options import DbOptions


class EmbeddedDefaults:
    """The defaults of the options ``compactor`` and ``gc``."""

    def __init__(self) -> None:
        self.compactor = True
        self.gc = True

    def change(self, *, compactor: bool | None = None, gc: bool | None = None) -> None:
        """Change the defaults that are given."""
        self.compactor = self.compactor if compactor is None else compactor
        self.gc = self.gc if gc is None else gc

    def applied(self, options: DbOptions) -> DbOptions:
        """Return options that say which services run."""
        compactor = self.compactor if options.compactor is None else options.compactor
        gc = self.gc if options.gc is None else options.gc
        return replace(options, compactor=compactor, gc=gc)


EMBEDDED_DEFAULTS = EmbeddedDefaults()
