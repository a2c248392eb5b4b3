"""``shale demo [DIRECTORY]``, also ``python -m shale_cli.demo``."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio
from rich.console import Console

from shale.errors import ShaleError
from shale.service.exit_codes import ExitCode
from shale_cli.demo.scenario import run_demo


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if every count matches, 4 if one differs, 2 for a directory that is not empty."""
    parser = argparse.ArgumentParser(prog="shale demo", description="Run a demonstration on real data.")
    parser.add_argument("directory", nargs="?", type=Path, help="the directory for the data; must be empty or missing")
    directory = parser.parse_args(arguments).directory or Path(tempfile.mkdtemp(prefix="shale-demo-"))
    if directory.exists() and any(directory.iterdir()):
        sys.stderr.write(f"shale demo: {directory} is not empty\n")
        return ExitCode.USAGE
    try:
        matches = anyio.run(run_demo, directory.resolve(), Console())
    except ShaleError as error:
        sys.stderr.write(f"shale demo: {error}\n")
        return ExitCode.ERROR
    return ExitCode.OK if matches else ExitCode.NEGATIVE


if __name__ == "__main__":
    sys.exit(main())
