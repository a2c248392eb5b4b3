"""The reference pages match the code."""

from shale.telemetry.reference import page
from tests.paths import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "reference" / "telemetry.md"


def test_the_page_is_fresh() -> None:
    assert DOCUMENT.read_text() == page(), "run make gen"
