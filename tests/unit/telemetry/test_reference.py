"""The documentation is what the code says."""

from pathlib import Path

from shale.telemetry.reference import page

DOCUMENT = Path(__file__).parents[3] / "docs" / "telemetry.md"


def test_the_page_is_fresh() -> None:
    assert DOCUMENT.read_text() == page(), "run make gen"
