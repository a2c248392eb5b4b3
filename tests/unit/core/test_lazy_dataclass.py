"""The lazy decorator makes the classes that the standard one makes."""

import copy
import pickle
from dataclasses import KW_ONLY, FrozenInstanceError, asdict, astuple, dataclass, field, fields, replace
from inspect import signature
from typing import Any, ClassVar

import pytest

from shale.core.lazy_dataclass import dataclass as lazily

DECORATORS = {"standard": dataclass, "lazy": lazily}


@lazily(frozen=True, slots=True, kw_only=True)
class Point:
    """At module level, so that it can be pickled."""

    x: int
    y: int = 2


@pytest.fixture(params=DECORATORS)
def decorator(request: pytest.FixtureRequest) -> Any:
    """Every behaviour below holds for both decorators."""
    return DECORATORS[request.param]


def test_arguments_are_checked_as_those_of_a_function(decorator: Any) -> None:
    """Positional, keyword-only, missing, unknown and repeated arguments; the same at every call."""

    @decorator(frozen=True, slots=True)
    class Value:
        """A value."""

        a: int
        b: list[int] = field(default_factory=list)
        _: KW_ONLY
        c: str = "c"
        d: str

    for _ in range(5):
        assert repr(Value(1, [2], d="x")).endswith("Value(a=1, b=[2], c='c', d='x')")
        assert Value(1, d="x").b == []
        assert Value(1, d="x").b is not Value(1, d="x").b
        for arguments, keywords in [((), {}), ((1,), {}), ((1, [], "c"), {"d": "x"}), ((1,), {"d": "x", "e": 1})]:
            with pytest.raises(TypeError):
                Value(*arguments, **keywords)


def test_a_class_that_fails_at_its_first_instance_can_be_made_afterwards(decorator: Any) -> None:
    """Whether or not the arguments fit, the class is complete."""

    @decorator(slots=True)
    class Value:
        """A value."""

        a: int

    with pytest.raises(TypeError):
        Value()
    assert Value(1).a == 1


def test_frozen_instances_refuse_changes(decorator: Any) -> None:
    """Assignment and deletion raise; ``replace``, ``copy`` and matching work."""

    @decorator(frozen=True, slots=True)
    class Value:
        """A value."""

        a: int
        b: int = 5

    value = Value(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        value.a = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'a'"):
        del value.a
    assert replace(value, b=6) == Value(1, 6)
    assert copy.deepcopy(value) == copy.copy(value) == value
    assert (asdict(value), astuple(value)) == ({"a": 1, "b": 5}, (1, 5))
    match value:
        case Value(a, b):
            assert (a, b) == (1, 5)
    assert not hasattr(value, "__dict__")


def test_a_subclass_that_is_no_dataclass_has_attributes_of_its_own(decorator: Any) -> None:
    """Only the fields are frozen there."""

    @decorator(frozen=True)
    class Value:
        """A value."""

        a: int

    class Below(Value):
        pass

    below = Below(1)
    below.other = 2
    assert (below.a, below.other) == (1, 2)
    with pytest.raises(FrozenInstanceError):
        below.a = 2


def test_equality_and_hash(decorator: Any) -> None:
    """Equal by class and compared fields; hashable if frozen; ``eq=False`` keeps identity."""

    @decorator(frozen=True, slots=True)
    class Value:
        """A value."""

        a: Any
        told: int = field(default=0, compare=False)

    @decorator(frozen=True, slots=True)
    class Other:
        """Another one."""

        a: Any

    @decorator(slots=True)
    class Changing:
        """Not hashable."""

        a: int

    @decorator(frozen=True, slots=True, eq=False)
    class ById:
        """Compared by identity."""

        a: int

    @decorator(frozen=True)
    class Empty:
        """Without fields."""

    assert Value(1, 2) == Value(1, 3) != Value(2, 2)
    assert hash(Value(1, 2)) == hash(Value(1, 3))
    assert Value(1) != Other(1)
    assert Changing(1) == Changing(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Changing(1))
    assert ById(1) != ById(1)
    assert len({ById(1), ById(1)}) == 2
    assert (Empty(), hash(Empty()), repr(Empty())[-7:]) == (Empty(), hash(Empty()), "Empty()")


def test_order(decorator: Any) -> None:
    """Compared as tuples, within one class."""

    @decorator(frozen=True, slots=True, order=True)
    class Value:
        """A value."""

        a: int
        b: int

    assert sorted([Value(2, 0), Value(1, 3), Value(1, 2)]) == [Value(1, 2), Value(1, 3), Value(2, 0)]
    assert Value(1, 1) <= Value(1, 1) >= Value(1, 1)
    with pytest.raises(TypeError):
        _ = Value(1, 1) < (1, 1)


def test_methods_of_the_class_body_are_kept(decorator: Any) -> None:
    """So are its properties and class variables."""

    @decorator(frozen=True, slots=True)
    class Value:
        """A value."""

        a: int
        count: ClassVar[int] = 7

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 5

        def __eq__(self, other: object) -> bool:
            return True

    assert (repr(Value(1)), hash(Value(1)), Value(1) == 3, Value.count) == ("own", 5, True, 7)
    assert [one.name for one in fields(Value)] == ["a"]


def test_inherited_fields_and_post_init(decorator: Any) -> None:
    """Fields of the base come first; fields without a parameter get their default; ``__post_init__`` runs last."""
    seen = []

    @decorator(kw_only=True)
    class Base:
        """A base."""

        a: int = 1
        made: list[int] = field(default_factory=list, init=False, repr=False)
        later: int = field(init=False)

        def __post_init__(self) -> None:
            self.later = self.a + 1
            seen.append(self)

    @decorator(kw_only=True)
    class Below(Base):
        """Below it."""

        b: int = 2
        a: int = 3

    below = Below(b=4)
    assert (below.a, below.b, below.made, below.later) == (3, 4, [], 4)
    assert seen == [below]
    assert repr(below).endswith("Below(a=3, later=4, b=4)")
    assert Base().a == 1
    assert Base() != Below()


def test_an_instance_that_contains_itself_is_shown(decorator: Any) -> None:
    """Without endless recursion."""

    @decorator(slots=True)
    class Node:
        """A node."""

        next: Any = None

    node = Node()
    node.next = [node]
    assert repr(node).endswith("Node(next=[...])")


def test_frozen_instances_can_be_pickled() -> None:
    """With slots, too."""
    assert pickle.loads(pickle.dumps(Point(x=1))) == Point(x=1, y=2)


def test_nothing_is_compiled_before_the_first_instance() -> None:
    """Then the method is the compiled one, for good."""

    @lazily(frozen=True)
    class Value:
        """A value."""

        value_of_one_field: int

    def parameters() -> tuple[str, ...]:
        return Value.__init__.__code__.co_varnames

    assert "value_of_one_field" not in parameters()
    assert [Value(1), Value(value_of_one_field=2)] == [Value(1), Value(2)]
    assert parameters() == ("self", "value_of_one_field")


def test_the_signature_names_the_fields(decorator: Any) -> None:
    """``help`` shows it, before the first instance and afterwards; a subclass has its own."""

    @decorator(frozen=True, slots=True)
    class Value:
        """A value."""

        a: int
        _: KW_ONLY
        c: str = "c"

    class Same(Value):
        """Makes instances as its parent does."""

    class Other(Value):
        """Has other arguments."""

        def __init__(self, text: str) -> None:
            super().__init__(len(text))

    for _ in range(2):
        assert str(signature(Value)) == str(signature(Same)) == "(a: int, *, c: str = 'c') -> None"
        assert str(signature(Other)) == "(text: str) -> None"
        assert (Value(1).a, Same(1).a, Other("text").a) == (1, 1, 4)


@pytest.mark.parametrize("call", range(5))
def test_every_instance_is_initialized_alike(decorator: Any, call: int) -> None:
    """The first ones are made without compiled code."""
    made = []

    @decorator(frozen=True)
    class Value:
        """A value."""

        a: int
        b: int = 2
        c: list[int] = field(default_factory=list)
        d: int = field(init=False, default=7)
        e: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "e", self.a + self.b)
            made.append(self)

    for _ in range(call):
        Value(0)
    value = Value(1, c=[3])
    assert (value.a, value.b, value.c, value.d, value.e) == (1, 2, [3], 7, 3)
    assert made[call:] == [value]


@pytest.mark.parametrize("child", [dataclass, lazily])
def test_a_frozen_class_has_frozen_subclasses_only(decorator: Any, child: Any) -> None:
    """Of any decorator: users derive their own options."""

    @decorator(frozen=True, kw_only=True)
    class Value:
        """A value."""

        a: int = 1

    @child(frozen=True)
    class Longer(Value):
        """With one field more."""

        b: int = 2

    longer = Longer(3, a=4)
    assert (longer.a, longer.b) == (4, 3)
    assert replace(longer, a=5) == Longer(3, a=5)
    for name in ("a", "b"):
        with pytest.raises(FrozenInstanceError):
            setattr(longer, name, 0)
    with pytest.raises(TypeError, match="cannot inherit"):

        @dataclass
        class Changeable(Value):
            """Not frozen."""
