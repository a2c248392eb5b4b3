"""The accepted findings of bandit: a new one fails, and so does one that is gone."""

import pytest

from tests.checks.bandit_findings import ACCEPTED, accepted, problems

FOUND = [{"test_id": "B301", "filename": "./a.py", "line_number": 3, "issue_text": "pickle"}]


def test_a_finding_needs_a_reason() -> None:
    assert problems(FOUND, {}) == ["./a.py:3: B301 pickle"]
    assert problems(FOUND, {("B301", "a.py"): 1}) == []
    assert problems(FOUND * 2, {("B301", "a.py"): 1}) == ["./a.py:3: B301 pickle"] * 2


def test_a_reason_needs_its_finding() -> None:
    assert problems([], {("B301", "a.py"): 1}) == ["accepted_findings.toml: a.py: B301 is found 0 times, not 1"]


def test_the_reasons_are_read() -> None:
    assert all(count > 0 for count in accepted(ACCEPTED.read_text()).values())
    with pytest.raises(SystemExit, match="no reason"):
        accepted('[[accepted]]\ntest = "B301"\nfile = "a.py"\ncount = 1\nreason = ""\n')
