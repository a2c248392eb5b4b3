"""A value codec for failing loads: the environment decides the outcome of a task."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BEGUN = "SHALE_TEST_BEGUN"
"""A file that the first row of a load touches; the load then takes its time."""

DIE_AFTER = "SHALE_TEST_DIE_AFTER"
"""Every first attempt of a task ends its process after so many rows."""


class FlakyCodec:
    """A codec of the column ``value``."""

    def __init__(self) -> None:
        self.rows = 0

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """See ``RowCode``."""
        from pyspark import TaskContext

        self.rows += 1
        context = TaskContext.get()
        assert context is not None
        if self.rows == int(os.environ.get(DIE_AFTER, "0")) and not context.attemptNumber():
            os._exit(9)
        begun = os.environ.get(BEGUN)
        if begun is not None and self.rows % 1000 == 0:
            Path(begun).touch()
            time.sleep(1)
        return bytes(row["value"])

    def decode(self, value: bytes) -> Mapping[str, Any]:
        """See ``RowCode``."""
        return {"value": value}
