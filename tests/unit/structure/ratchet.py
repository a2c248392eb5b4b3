"""Known violations of the structure rules: a list that may only become shorter.

``still_over.json`` holds one list per rule.  A place that breaks a rule and is not listed fails the rule's test, and so
does a listed place that no longer breaks it.  ``python -m tests.unit.structure.ratchet`` removes the latter.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

LIST = Path(__file__).with_name("still_over.json")

Rule = Callable[[], Mapping[str, int]]
"""Finds the places that break a rule, each with its measure (lines, methods, uses)."""


def check(name: str, found: Mapping[str, int]) -> None:
    """Compare the places that break a rule with the list.

    Args:
        name: the rule, a key of ``still_over.json``.
        found: place to measure.
    """
    listed = json.loads(LIST.read_text())[name]
    new = {place: size for place, size in found.items() if place not in listed}
    assert not new, f"{name}: {new}"
    fixed = [place for place in listed if place not in found]
    assert not fixed, f"{name}: fixed, so run `python -m tests.unit.structure.ratchet`: {fixed}"


def rules() -> dict[str, Rule]:
    """Return every rule that has a list."""
    from tests.unit.structure import (
        test_classes,
        test_imports,
        test_modules,
        test_private_attributes,
        test_test_imports,
        test_vocabulary,
    )

    return {
        name: rule
        for module in (
            test_classes,
            test_imports,
            test_modules,
            test_private_attributes,
            test_test_imports,
            test_vocabulary,
        )
        for name, rule in module.RULES.items()
    }


def main() -> None:
    """Remove the places that no longer break their rule; add none."""
    before = json.loads(LIST.read_text())
    after = {}
    for name, rule in sorted(rules().items()):
        found = rule()
        after[name] = sorted(place for place in before.get(name, ()) if place in found)
    LIST.write_text(json.dumps(after, indent=1) + "\n")


if __name__ == "__main__":
    main()
