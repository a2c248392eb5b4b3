"""``python -m shale_cli.demo [DIRECTORY]``."""

import sys
import tempfile
from pathlib import Path

import anyio
from rich.console import Console

from shale_cli.demo.story import run_demo


def main() -> int:
    """Run the demo in a fresh directory; 0 if every count matches, 4 otherwise."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="shale-demo-"))
    console = Console()
    return 0 if anyio.run(run_demo, directory, console) else 4


if __name__ == "__main__":
    sys.exit(main())
