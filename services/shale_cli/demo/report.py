"""The checks of the demo and its final summary."""

from dataclasses import field

from rich.console import Console
from rich.table import Column, Table

from shale.core.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One check: the expected and the actual value."""

    what: str
    expected: object
    seen: object

    @property
    def holds(self) -> bool:
        """Whether the check passed."""
        return self.expected == self.seen


@dataclass(slots=True)
class DemoReport:
    """Checks and facts, in the order in which they were added."""

    checks: list[Check] = field(default_factory=list)
    facts: list[tuple[str, object]] = field(default_factory=list)

    def check(self, what: str, *, expected: object, seen: object) -> None:
        """Add a check."""
        self.checks.append(Check(what, expected, seen))

    def fact(self, what: str, value: object) -> None:
        """Add a fact that is not checked."""
        self.facts.append((what, value))

    @property
    def holds(self) -> bool:
        """Whether every check passed."""
        return all(check.holds for check in self.checks)

    def show(self, console: Console) -> None:
        """Print facts and checks as tables."""
        facts = Table("what happened", Column(overflow="fold"), title="The demo in numbers", title_justify="left")
        for what, value in self.facts:
            facts.add_row(what, str(value))
        console.print(facts)
        checks = Table("what must hold", "expected", "seen", "")
        for check in self.checks:
            verdict = "[green]ok[/]" if check.holds else "[bold red]DIFFERS[/]"
            checks.add_row(check.what, str(check.expected), str(check.seen), verdict)
        console.print(checks)
