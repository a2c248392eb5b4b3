"""Variants with fields, like UniFFI's rendering of Rust's enums: ``Ttl.DEFAULT()``, ``Ttl.EXPIRE_AT_MILLIS(5)[0]``.

Every variant is a subclass of its choice, and the choice has the tests ``is_DEFAULT()`` and ``is_default()``.
"""

from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, ClassVar


class Case:
    """A variant in the body of a choice, with fields called ``names``, or with ``count`` fields without a name."""

    def __init__(self, *names: str, count: int = 0) -> None:
        self.names = names
        self.count = count


def case(*names: str, count: int = 0) -> Any:
    """Declare a variant; it is typed as ``Any`` because the choice replaces it by a class."""
    return Case(*names, count=count)


class Choice:
    """The base of all choices; its subclasses declare their variants with ``case``."""

    _names: ClassVar[tuple[str, ...]] = ()
    _values: tuple[Any, ...]

    def __init__(self) -> None:
        raise RuntimeError(f"{type(self).__name__} cannot be instantiated directly")

    def __init_subclass__(cls) -> None:
        for name, declared in list(vars(cls).items()):
            if isinstance(declared, Case):
                variant = _variant(cls, name, declared)
                setattr(cls, name, variant)
                test = _test(variant)
                setattr(cls, f"is_{name}", test)
                setattr(cls, f"is_{name.lower()}", test)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Choice):
            return NotImplemented
        return type(self) is type(other) and self._values == other._values

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Fields and ``is_…`` of the variants, which are made while the program runs."""

    __hash__ = None  # type: ignore[assignment]  # like the records, which are mutable and compared by value

    def __str__(self) -> str:
        if not self._names and self._values:
            return f"{type(self).__name__}{self._values!r}"
        shown = ", ".join(f"{name}={value}" for name, value in zip(self._names, self._values, strict=True))
        return f"{type(self).__name__}({shown})"

    __repr__ = __str__


def _test(variant: type[Choice]) -> Any:
    def is_variant(self: Choice) -> bool:
        return isinstance(self, variant)

    return is_variant


def _variant(choice: type[Choice], name: str, declared: Case) -> type[Choice]:
    """Make the class of one variant: with named fields, or indexed like a tuple."""
    names, count = declared.names, declared.count

    def with_fields(self: Choice, *values: Any, **named: Any) -> None:
        bound = _signature(names).bind(*values, **named)
        self._values = tuple(bound.arguments[field] for field in names)

    def with_values(self: Choice, *values: Any) -> None:
        if len(values) != count:
            raise TypeError(f"Expected {count} arguments, found {len(values)}")
        self._values = values

    body: dict[str, Any] = {"_names": names, "__module__": choice.__module__}
    if count:
        body["__init__"] = with_values
        body["__getitem__"] = lambda self, index: self._values[index]
    else:
        body["__init__"] = with_fields
        body.update({field: _field(place) for place, field in enumerate(names)})
    made = type(f"{choice.__name__}.{name}", (choice,), body)
    if not count:
        made.__init__.__signature__ = _signature(("self", *names))  # type: ignore[misc]
    return made


def _field(place: int) -> property:
    return property(lambda self: self._values[place])


def _signature(names: tuple[str, ...]) -> Signature:
    return Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])
