"""Make the fixture of a release: ``python -m tests.upgrade.make_fixture --commit v0.2.0 --name 0.2.0``.

The code of the commit writes the databases of ``scenario.py``.  The archive is committed, and from then on each later
version is tested with it: one fixture is added with each release, and none is ever made again.
"""

import argparse
import gzip
import io
import json
import tarfile
import tempfile
from pathlib import Path

from tests.upgrade.versions import checked_out

FIXTURES = Path(__file__).parent / "fixtures"
SCENARIO = Path(__file__).with_name("scenario.py")


def archive(folder: Path) -> bytes:
    """Return the files of a folder as an archive, the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(entry, file)
    return gzip.compress(buffer.getvalue(), mtime=0)


def main() -> None:
    """Make one fixture."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade.make_fixture")
    parser.add_argument("--commit", required=True)
    parser.add_argument("--name", required=True, help="the version, such as 0.2.0")
    given = parser.parse_args()
    with checked_out(given.commit) as version, tempfile.TemporaryDirectory() as place:
        version.run(str(SCENARIO), place)
        described = json.loads((Path(place) / "rows.json").read_text())
        data = archive(Path(place))
    FIXTURES.mkdir(exist_ok=True)
    (FIXTURES / f"{given.name}.tar.gz").write_bytes(data)
    print(f"{given.name}: {len(data)} bytes, {', '.join(described['databases'])}")
    for name, why in described["left_out"].items():
        print(f"left out: {name}: {why}")


if __name__ == "__main__":
    main()
