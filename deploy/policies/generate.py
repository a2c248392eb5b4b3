"""Write the policies of the roles, and the tables of SECURITY.md: ``python -m deploy.policies.generate``."""

import json
from collections.abc import Iterator
from pathlib import Path

from deploy.policies.roles import PREFIXES, ROLES, Operation, Place, Role
from deploy.policies.s3 import policy

FOLDER = Path(__file__).parent / "s3"
PAGE = Path(__file__).parents[2] / "SECURITY.md"
BEGIN, END = "<!-- rights: made by deploy/policies/generate.py -->", "<!-- end of rights -->"
COLUMNS = ("manifest", "wal", "compacted", "compactions", "records", "gc", "destroyed", "deleting", "check")
"""The titles of ``PREFIXES``; the last is of ``.shale-preflight/``."""
LETTERS = {Operation.GET: "r", Operation.PUT: "w", Operation.DELETE: "d"}


def policy_text(role: Role) -> str:
    """Return the file of a role's policy."""
    return json.dumps(policy(role), indent=2) + "\n"


def tables() -> str:
    """Return the tables: what each role may do, and why."""
    return "\n".join([*_rights(), "", *_reasons()])


def _rights() -> Iterator[str]:
    yield f"| role | {' | '.join(COLUMNS)} |"
    yield "| --- |" + " --- |" * len(PREFIXES)
    for place in Place:
        for role in ROLES:
            if place in role.places():
                cells = [_letters(role.operations(prefix, place)) for prefix in PREFIXES]
                name = role.name if place is Place.DATABASE else f"{role.name}: {place}"
                yield f"| {name} | {' | '.join(cells)} |"


def _letters(operations: tuple[Operation, ...]) -> str:
    return "".join(LETTERS[each] for each in operations) or "–"


def _reasons() -> Iterator[str]:
    yield "| role | right | why |"
    yield "| --- | --- | --- |"
    for role in ROLES:
        for right in role.rights:
            where = ", ".join(f"`{prefix}`" if prefix else "all objects" for prefix in right.prefixes)
            name = role.name if right.place is Place.DATABASE else f"{role.name}: {right.place}"
            yield f"| {name} | {_letters(right.operations)} {where} | {right.why} |"


def with_tables(page: str) -> str:
    """Return the page with the tables of now."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{rest.split(END)[1]}"


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for role in ROLES:
        (FOLDER / f"{role.name}.json").write_text(policy_text(role))
    PAGE.write_text(with_tables(PAGE.read_text()))


if __name__ == "__main__":
    main()
