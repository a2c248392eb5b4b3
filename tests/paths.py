"""Folders of the repository, for tests and for the processes that they start."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PYTHONPATH = os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "shared", REPOSITORY / "services")))
"""What a process needs in this variable to import the code and the tests."""
