"""Errors of ours in Spark's Python workers, without the traceback in front of which nobody finds their message.

A worker writes an exception to Spark and ends.  Spark shows what it wrote as it is; that begins with the traceback,
unless the environment of the worker says otherwise.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from shale.errors import ShaleError

_HIDE = "SPARK_HIDE_TRACEBACK"


@contextmanager
def one_line() -> Iterator[None]:
    """What ends this process with an error of ours ends it with its message alone; other errors keep their traceback.

    Outside of Spark's workers nothing happens.
    """
    try:
        yield
    except ShaleError:
        if _is_worker():
            os.environ[_HIDE] = "1"
        raise


def _is_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and str(spec.name).startswith("pyspark.")
