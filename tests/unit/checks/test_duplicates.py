"""The check of duplicates: which runs are pairs, and what is skipped."""

from tests.checks.duplicates import find_pairs, judge, shapes

BODY = """
def {name}(rows, limit):
    total = {number}
    for row in rows:
        if row.size > limit:
            total += row.size - limit
        elif row.size < {number}:
            total -= abs(row.size) + {number}
        else:
            total = total * {number} + "{name}".count(row.key)
    return total / len(rows)
"""


def pairs(*texts: str) -> list:
    return find_pairs({f"{number}.py": shapes(text) for number, text in enumerate(texts)})


def test_other_names_and_numbers_are_the_same_shape() -> None:
    (pair,) = pairs(BODY.format(name="first", number=1), BODY.format(name="second", number=22))
    assert (pair.first, pair.second, pair.lines) == ("0.py", "1.py", 9)


def test_another_operator_is_another_shape() -> None:
    other = BODY.format(name="second", number=1).replace("+=", "-=").replace("/", "//")
    assert pairs(BODY.format(name="first", number=1), other) == []


def test_comments_docstrings_imports_and_blank_lines_are_passed_over() -> None:
    text = BODY.format(name="first", number=1)
    spread = "import os\n" + text.replace("\n    for", '\n\n    """Text."""\n    # why\n    import re\n    for')
    (pair,) = pairs(text, spread)
    assert pair.lines == 9


def test_a_run_inside_one_file_is_a_pair_but_does_not_overlap_itself() -> None:
    (pair,) = pairs(BODY.format(name="first", number=1) + BODY.format(name="second", number=2))
    assert (pair.first, pair.second) == ("0.py", "0.py")
    assert pairs("x = [\n" + "    call(1, 2, 3, 4),\n" * 9 + "]\n") == []


def test_fields_and_signatures_are_declarations_and_no_pairs() -> None:
    fields = "".join(f"    field_{number}: dict[str, list[int]] | None = None\n" for number in range(9))
    assert pairs(f"class A:\n{fields}", f"class B:\n{fields}") == []
    parameters = "".join(f"    {name}: dict[str, list[int]],\n" for name in "abcdefgh")
    assert pairs(*(f"def {name}(\n{parameters}) -> None:\n    pass\n" for name in "xy")) == []


def test_short_lists_and_common_shapes_are_no_pairs() -> None:
    constants = "".join(f"A{number} = {number}\n" for number in range(8))
    assert pairs(constants, constants) == []
    assert pairs(*(BODY.format(name=f"f{number}", number=number) for number in range(9))) == []


def settings(**entries: list[dict[str, str]]) -> dict:
    return {"limit": 1, "limit_without_reason": 0, **entries}


def test_a_pair_with_a_reason_counts_for_the_limit_only() -> None:
    found = pairs(BODY.format(name="first", number=1), BODY.format(name="second", number=2))
    assert not judge(found, settings()).passes
    report = judge(found, settings(pair=[{"a": "1.py", "b": "0.py", "reason": "a mirror"}]))
    assert report.passes
    assert (report.total, report.explained, report.unexplained) == (1, found, [])
    assert not judge(found, {**settings(pair=[{"a": "1.py", "b": "0.py", "reason": "a mirror"}]), "limit": 0}).passes


def test_an_entry_without_a_reason_explains_nothing() -> None:
    found = pairs(BODY.format(name="first", number=1), BODY.format(name="second", number=2))
    assert not judge(found, settings(pair=[{"a": "0.py", "b": "1.py", "reason": ""}])).passes


def test_an_entry_names_files_and_a_group_takes_globs_in_either_order() -> None:
    found = pairs(BODY.format(name="first", number=1), BODY.format(name="second", number=2))
    assert judge(found, settings(group=[{"a": "1.*", "b": "0.py", "reason": "data"}])).total == 0
    assert judge(found, settings(group=[{"a": "0.py", "b": "0.py", "reason": "itself"}])).total == 1
    assert judge(found, settings(pair=[{"a": "*.py", "b": "*.py", "reason": "globs"}])).unexplained == found


def test_an_entry_without_a_pair_must_go() -> None:
    report = judge([], settings(pair=[{"a": "0.py", "b": "1.py", "reason": "a mirror"}]))
    assert not report.passes
    assert report.unused == ["0.py ~ 1.py"]
