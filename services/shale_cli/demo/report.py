"""What the demo promises, as checks that can fail, and the summary it ends with."""

from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Column, Table


@dataclass(frozen=True, slots=True)
class Check:
    """One promise: what must be, and what was seen."""

    what: str
    expected: object
    seen: object

    @property
    def holds(self) -> bool:
        """Whether the promise was kept."""
        return self.expected == self.seen


@dataclass(slots=True)
class Report:
    """Checks and plain facts, in the order in which they came."""

    checks: list[Check] = field(default_factory=list)
    facts: list[tuple[str, object]] = field(default_factory=list)

    def check(self, what: str, *, expected: object, seen: object) -> None:
        """Note a promise."""
        self.checks.append(Check(what, expected, seen))

    def fact(self, what: str, value: object) -> None:
        """Note something worth knowing that promises nothing."""
        self.facts.append((what, value))

    @property
    def holds(self) -> bool:
        """Whether every promise was kept."""
        return all(check.holds for check in self.checks)

    def show(self, console: Console) -> None:
        """Print both as tables."""
        facts = Table("what happened", Column(overflow="fold"), title="The main job in numbers", title_justify="left")
        for what, value in self.facts:
            facts.add_row(what, str(value))
        console.print(facts)
        checks = Table("what must hold", "expected", "seen", "")
        for check in self.checks:
            verdict = "[green]ok[/]" if check.holds else "[bold red]DIFFERS[/]"
            checks.add_row(check.what, str(check.expected), str(check.seen), verdict)
        console.print(checks)
