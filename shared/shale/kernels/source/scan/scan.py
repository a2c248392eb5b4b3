"""Kernel: the visible rows of a range as Python's objects, from cached blocks and memtables (``layout.scan``).

Its twin is the scan that reads in chunks (``shale.engine.scan``), which also answers what this kernel declines.
"""

from shale.kernels.layout.scan import IS_REVERSED, TOO_LARGE
from shale.kernels.source.jit import kernel
from shale.kernels.source.memory import word
from shale.kernels.source.python_objects import pause_collection, resume_collection
from shale.kernels.source.scan.backward import scan_backward
from shale.kernels.source.scan.forward import scan_forward
from shale.kernels.source.scan.request import take_request


@kernel("count(key, object, object, object)", holds_lock=True)
def scan_cached(request: int, request_len: int, rows: int, row_type: int, none: int) -> int:
    """Append rows to a list; see ``layout.scan``."""
    sources = take_request(request)
    if sources < 0:
        return TOO_LARGE
    # The search for cycles may run finalizers, and they might drop a block that is being read.
    was_on = pause_collection()
    if word(request, IS_REVERSED) != 0:
        answer = scan_backward(request, sources, rows, row_type, none)
    else:
        answer = scan_forward(request, sources, rows, row_type, none)
    if was_on != 0:
        resume_collection()
    return answer
