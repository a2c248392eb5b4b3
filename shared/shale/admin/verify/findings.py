"""A list of findings that stays bounded: a thousand versions may say the same thing a hundred times each."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from shale.sst.verify.codes import Severity
from shale.sst.verify.finding import Finding

FINDINGS_MAX = 10_000
"""Of each severity, so that warnings never push an error out."""


@dataclass(slots=True)
class Findings:
    """At most ``FINDINGS_MAX`` errors and as many warnings; ``left_out`` counts the others."""

    listed: list[Finding] = field(default_factory=list)
    left_out: int = 0
    _counts: Counter[Severity] = field(default_factory=Counter)

    def append(self, finding: Finding) -> None:
        """Add one, or count it."""
        if self._counts[finding.severity] >= FINDINGS_MAX:
            self.left_out += 1
            return
        self._counts[finding.severity] += 1
        self.listed.append(finding)

    def __iadd__(self, findings: Iterable[Finding]) -> Self:
        for finding in findings:
            self.append(finding)
        return self


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """In the order in which they were found if that are few enough, otherwise errors before warnings."""
    found = list(findings)
    return found if len(found) <= FINDINGS_MAX else sorted(found, key=lambda each: each.severity is Severity.WARNING)
