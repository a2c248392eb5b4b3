"""The golden files that SlateDB 0.17.0 wrote, for parametrizing tests."""

from pathlib import Path

FIXTURES = Path(__file__).parent / "interop" / "fixtures" / "slatedb-0.17"


def golden(pattern: str) -> list[Path]:
    """Return the files below the fixtures whose name matches, sorted."""
    return sorted(path for path in FIXTURES.rglob(pattern) if path.is_file())


def label(path: Path) -> str:
    """Return a short test id."""
    return str(path.relative_to(FIXTURES))
