"""Plain Python instead of compiled kernels, for one test."""

import importlib
from functools import cache

import pytest

from shale.kernels import dispatch
from tests.paths import REPOSITORY

_LIBRARY = REPOSITORY / "shared"


def without_kernels(patch: pytest.MonkeyPatch) -> None:
    """Let the library find no compiled kernels until the patch is undone."""
    _import_users()
    patch.setattr(dispatch, "compiled", None)


@cache
def _import_users() -> None:
    """Import all modules that keep the kernels.

    One that is first imported under the patch would have none for the rest of the process.
    """
    for path in sorted((_LIBRARY / "shale").rglob("*.py")):
        if "kernels.dispatch import compiled" in path.read_text("utf-8"):
            importlib.import_module(".".join(path.relative_to(_LIBRARY).with_suffix("").parts))
