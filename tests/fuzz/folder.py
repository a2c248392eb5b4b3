"""A folder for the files that parsers read, which goes with the process."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def folder() -> Path:
    """Return the folder of this process.  A child that ends without handlers leaves it to ``tests.fuzz.__main__``."""
    made = Path(tempfile.mkdtemp(prefix="shale-fuzz-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
