"""Whether the packages of the extra are there; everything that needs them says so in one line where they are not."""

from collections.abc import Sequence
from importlib.util import find_spec

from shale.errors import InvalidRequestError

PACKAGES = ("pyspark", "pandas", "pyarrow")
INSTALL = "pip install 'shale[spark]'"


def require_extra(packages: Sequence[str] = PACKAGES) -> None:
    """Return if everything is installed that Spark needs of Python.

    Raises:
        InvalidRequestError: something is not; names it, and the command that installs it.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InvalidRequestError(f"{' and '.join(missing)}: not installed; install with: {INSTALL}")
