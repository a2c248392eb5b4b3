"""Whether writers of this process run services, unless their options say it (``shale.configure``)."""

from shale.errors import WrongType


class EmbeddedDefaults:
    """The defaults of the options ``compactor`` and ``gc``."""

    def __init__(self) -> None:
        self.compactor = True
        self.gc = True

    def change(self, *, compactor: bool | None = None, gc: bool | None = None) -> None:
        """Change the defaults that are given.

        Raises:
            WrongType: one is not a bool.
        """
        for name, value in (("compactor", compactor), ("gc", gc)):
            if not isinstance(value, bool | None):
                raise WrongType(f"{name}={value!r} is of type {type(value).__name__}: give a value of type bool")
        self.compactor = self.compactor if compactor is None else compactor
        self.gc = self.gc if gc is None else gc


EMBEDDED_DEFAULTS = EmbeddedDefaults()
