"""The compiled kernels, or plain Python where there are none.

``compiled`` is the extension module that ``shale.kernels.compiler`` makes, or ``None``: then everything works, ten to a
hundred times slower.  ``SHALE_KERNELS=off`` does without, for tests of the plain Python.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shale.kernels import _compiled as compiled
else:
    compiled = None
    if os.environ.get("SHALE_KERNELS") != "off":
        from contextlib import suppress

        with suppress(ImportError):
            from shale.kernels import _compiled as compiled


__all__ = ["compiled", "use_kernels"]


def use_kernels() -> bool:
    """Return whether there are compiled kernels."""
    return compiled is not None
