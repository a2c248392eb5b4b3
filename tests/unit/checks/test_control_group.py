"""The check of memory says why it is skipped."""

import pytest

from tests.checks import memory


def test_where_no_control_group_can_be_made_the_check_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """And is no failure."""
    assert memory.main((256,), why_not=lambda: "no control group can be made: read-only") == 0
    assert capsys.readouterr().out == "memory-check: skipped: no control group can be made: read-only\n"
