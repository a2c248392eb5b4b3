"""Every public name of the wheel exists, with the same parameters, defaults and kinds of call."""

import enum
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from slatedb import uniffi as wheel

import shale.compat.slatedb as package
from shale.compat.slatedb import uniffi as ours

NO_CONSTRUCTOR = "(self, *args, **kwargs)"
"""The signature of a class whose objects only other calls give out."""


def names() -> list[str]:
    return sorted(set(wheel.__all__))


def classes() -> list[str]:
    return [name for name in names() if inspect.isclass(getattr(wheel, name))]


def parameters(call: Any) -> list[tuple[str, Any, bool]]:
    """Return name, kind and whether there is a default; the wheel hides most values of defaults."""
    found = inspect.signature(call).parameters.values()
    return [(each.name, each.kind, each.default is not inspect.Parameter.empty) for each in found]


def visible_defaults(call: Any) -> dict[str, Any]:
    found = inspect.signature(call).parameters.values()
    return {each.name: each.default for each in found if isinstance(each.default, bool | int | str)}


def methods(class_: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(class_).items():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(plain) and not name.startswith("_"):
            yield name, plain


def found(class_: type, name: str) -> Any:
    value = inspect.getattr_static(class_, name)
    return value.__func__ if isinstance(value, classmethod | staticmethod) else value


def test_all_names_are_there_and_no_others() -> None:
    assert sorted(ours.__all__) == names()
    assert {*package.__all__} == {*names(), "uniffi"}
    for name in names():
        assert getattr(ours, name) is getattr(package, name)


@pytest.mark.parametrize("name", classes())
def test_a_class_has_the_same_calls(name: str) -> None:
    theirs, mine = getattr(wheel, name), getattr(ours, name)
    for method, call in methods(theirs):
        other = found(mine, method)
        assert inspect.iscoroutinefunction(other) == inspect.iscoroutinefunction(call), method
        assert parameters(other) == parameters(call), method
    extra = {method for method, _ in methods(mine)} - {method for method, _ in methods(theirs)}
    assert not extra or name.endswith("Protocol"), "the wheel's protocols have no class methods, the classes do"


@pytest.mark.parametrize("name", classes())
def test_a_class_is_made_the_same_way(name: str) -> None:
    theirs, mine = getattr(wheel, name), getattr(ours, name)
    if issubclass(theirs, enum.Enum):
        assert [(each.name, each.value) for each in theirs] == [(each.name, each.value) for each in mine]
        return
    if name.endswith("Protocol") or str(inspect.signature(theirs.__init__)) == NO_CONSTRUCTOR:
        return
    if "__init__" in vars(theirs):
        assert parameters(theirs.__init__) == parameters(mine.__init__)
        assert visible_defaults(theirs.__init__).items() <= visible_defaults(mine.__init__).items()


CHOICES = (
    "CacheTarget CompactionSpec Error FilterContext MergeOperatorCallbackError MetricValue PrefixTarget ReaderMode"
    " SourceId Ttl"
)
HANDLES = "Db DbReader DbSnapshot DbTransaction DbIterator WriteHandle Settings ObjectStore"


@pytest.mark.parametrize("name", CHOICES.split())
def test_variants_are_classes_of_their_own(name: str) -> None:
    theirs, mine = getattr(wheel, name), getattr(ours, name)
    variants = [each for each, value in vars(theirs).items() if inspect.isclass(value) and not each.startswith("_")]
    assert variants
    for variant in variants:
        other = getattr(mine, variant)
        assert issubclass(other, mine)
        arguments = _arguments(getattr(theirs, variant))
        theirs_made, mine_made = getattr(theirs, variant)(*arguments), other(*arguments)
        assert str(theirs_made) == str(mine_made)
        if not issubclass(theirs, Exception):
            assert getattr(mine_made, f"is_{variant}")()
            assert getattr(mine_made, f"is_{variant.lower()}")()
            assert other(*arguments) == mine_made
    if not issubclass(theirs, Exception):
        with pytest.raises(RuntimeError, match="cannot be instantiated"):
            mine()


def _arguments(variant: Any) -> list[Any]:
    wanted = [each for each in inspect.signature(variant).parameters.values() if each.kind is not each.VAR_POSITIONAL]
    return [1] * len(wanted) if wanted or not inspect.signature(variant).parameters else [1]


RECORDS = [name for name in classes() if "__dataclass_fields__" in vars(getattr(wheel, name))]


@pytest.mark.parametrize("name", RECORDS)
def test_records_compare_and_print_alike(name: str) -> None:
    theirs, mine = getattr(wheel, name), getattr(ours, name)
    fields = [each.name for each in list(inspect.signature(theirs.__init__).parameters.values())[1:]]
    values = {field: number for number, field in enumerate(fields)}
    made = mine(**values)
    assert made == mine(**values)
    if fields:
        assert made != mine(**{**values, fields[0]: "another"})
        setattr(made, fields[0], "changed")
        assert getattr(made, fields[0]) == "changed"
    assert str(mine(**values)) == str(theirs(**values))
    with pytest.raises(TypeError):
        hash(made)
    with pytest.raises(TypeError):
        mine(*values.values())


def test_classes_without_a_constructor_say_so() -> None:
    for name in (
        "Db",
        "DbReader",
        "DbSnapshot",
        "DbTransaction",
        "DbIterator",
        "WriteHandle",
        "Settings",
        "ObjectStore",
        "LogCallbackImpl",
        "MergeOperatorImpl",
        "MetricsRecorderImpl",
        "PrefixExtractorImpl",
    ):
        with pytest.raises(ValueError, match="no default constructor"):
            getattr(ours, name)()


@pytest.mark.parametrize("name", ["LogCallback", "MergeOperator", "MetricsRecorder", "PrefixExtractor"])
def test_interfaces_are_plain_bases_whose_calls_are_missing(name: str) -> None:
    for api in (wheel, ours):
        base = getattr(api, name)
        assert issubclass(getattr(api, f"{name}Impl"), base)
        for method, call in methods(base):
            arguments = [None] * (len(inspect.signature(call).parameters) - 1)
            with pytest.raises(NotImplementedError):
                getattr(type("Incomplete", (base,), {})(), method)(*arguments)
