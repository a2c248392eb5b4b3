"""A bounded list of findings: thousands of versions may repeat the same finding."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from typing import Self

from shale.core.lazy_dataclass import dataclass
from shale.sst.verify.codes import Severity
from shale.sst.verify.finding import Finding

FINDINGS_MAX = 10_000
"""Limit of each severity, so that warnings never displace errors."""


@dataclass(slots=True)
class Findings:
    """At most ``FINDINGS_MAX`` errors and as many warnings; ``left_out`` counts the others."""

    listed: list[Finding] = field(default_factory=list)
    left_out: int = 0
    _counts: Counter[Severity] = field(default_factory=Counter)

    def append(self, finding: Finding) -> None:
        """Add a finding, or only count it beyond the limit."""
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
    """Keep the order of findings if they are within the limit; otherwise put errors before warnings."""
    found = list(findings)
    return found if len(found) <= FINDINGS_MAX else sorted(found, key=lambda each: each.severity is Severity.WARNING)
