"""``python -m shale_spark.demo [DIRECTORY]``, which ``make spark-demo`` runs."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from shale.errors import ShaleError
from shale.service.exit_codes import ExitCode
from shale.service.exit_process import exit_process
from shale_spark.prerequisites import require_extra


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if every count matches, 4 if one differs, 2 for a directory that is not empty."""
    parser = argparse.ArgumentParser(prog="shale_spark.demo", description="Run the data pipeline on real data.")
    parser.add_argument("directory", nargs="?", type=Path, help="where the data goes; must be empty or missing")
    parser.add_argument("--master", default="local[2]", help="where Spark runs; executors must see the directory")
    given = parser.parse_args(arguments)
    directory: Path = given.directory or Path(tempfile.mkdtemp(prefix="shale-spark-demo-"))
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        sys.stderr.write(f"shale spark demo: {directory} is not an empty directory\n")
        return ExitCode.USAGE
    try:
        require_extra()
        matches = _run(directory.resolve(), given.master)
    except ShaleError as error:
        sys.stderr.write(f"shale spark demo: {error}\n")
        return ExitCode.ERROR
    return ExitCode.OK if matches else ExitCode.NEGATIVE


def _run(directory: Path, master: str) -> bool:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from shale_spark.demo.steps import run_demo
    from shale_spark.errors import shale_error_of

    try:
        return run_demo(directory, Console(), master=master)
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise shale_error_of(error) from error


if __name__ == "__main__":
    exit_process(main())
