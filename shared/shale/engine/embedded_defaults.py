"""Whether writers of this process run services, unless their options say it (``shale.configure``)."""


class EmbeddedDefaults:
    """The defaults of the options ``compactor`` and ``gc``."""

    def __init__(self) -> None:
        self.compactor = True
        self.gc = True

    def change(self, *, compactor: bool | None = None, gc: bool | None = None) -> None:
        """Change the defaults that are given."""
        self.compactor = self.compactor if compactor is None else compactor
        self.gc = self.gc if gc is None else gc


EMBEDDED_DEFAULTS = EmbeddedDefaults()
