"""A compaction filter that keeps a job busy until a file exists, so that a test finds it running."""

import os
import time
from pathlib import Path

import shale

LIMIT_S = 60.0


class Held(shale.CompactionFilter):
    """A filter that keeps every row once the file exists."""

    def filter(self, batch: shale.RowBatch) -> shale.Decisions:
        go = Path(os.environ["TEST_HELD_UNTIL"])
        deadline = time.monotonic() + LIMIT_S
        while not go.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return shale.Decisions()
