"""``dataclass`` whose methods are compiled when they are first used.

The standard decorator compiles up to ten functions for each class, 0.3 ms, and a process uses few of its classes.  This
one compiles ``__init__`` at the fourth instance, and makes the other methods from closures.  Classes, instances and
their fields are those of ``dataclasses``: ``replace``, ``fields``, ``asdict``, pickling and matching work as usual.
For a type checker this is the standard decorator.
"""

import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from reprlib import recursive_repr
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, eq=True, order=False, frozen=False, kw_only=False, slots=False, weakref_slot=False):
        """Make a class a dataclass; the arguments are those of ``dataclasses.dataclass``."""

        def decorate(cls):
            has_hash = _defines_hash(cls)
            standard = dataclasses.dataclass(
                init=False, repr=False, eq=False, kw_only=kw_only, slots=slots, weakref_slot=weakref_slot
            )
            with _ONE_BY_ONE, _thawed(cls.__mro__[1:]):
                made = standard(cls)
            # The standard decorator refuses a frozen subclass of a class that is not.
            made.__dataclass_params__.frozen = frozen
            _add_methods(made, eq=eq, order=order, frozen=frozen, has_hash=has_hash)
            if frozen and slots:
                _add_state(made)
            return made

        return decorate if cls is None else decorate(cls)


_ONE_BY_ONE: Final = RLock()
"""Another thread must not see the bases of a class thawed."""
_UNCOMPILED_INSTANCES: Final = 3
"""Setting the fields of one instance in a loop takes a tenth of the time to compile; most classes have few instances
in a process that opens a database."""

_FROM_FACTORY: Final = object()
"""The default of a parameter whose field has a factory."""


@contextmanager
def _thawed(bases: Iterable[type]) -> Iterator[None]:
    """Let frozen bases pass for changeable ones: frozen methods of the standard decorator would be compiled at once."""
    frozen = [base.__dict__["__dataclass_params__"] for base in bases if "__dataclass_params__" in base.__dict__]
    frozen = [parameters for parameters in frozen if parameters.frozen]
    for parameters in frozen:
        parameters.frozen = False
    try:
        yield
    finally:
        for parameters in frozen:
            parameters.frozen = True


def _defines_hash(cls: type) -> bool:
    """Whether the body of the class defines ``__hash__``; ``__eq__`` alone makes Python set it to ``None``."""
    own = vars(cls)
    return "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)


def _add_methods(cls: Any, *, eq: bool, order: bool, frozen: bool, has_hash: bool) -> None:
    """Set the methods that the body of the class does not define."""
    _add(cls, "__init__", _first_init(cls, frozen=frozen))
    _add(cls, "__repr__", _repr)
    values = _values_of(tuple(field.name for field in dataclasses.fields(cls) if field.compare))
    if eq:
        _add(cls, "__eq__", _comparison(values, operator.eq))
        if not has_hash:
            cls.__hash__ = _hash_of(values) if frozen else None
    if order:
        for name in ("lt", "le", "gt", "ge"):
            _add(cls, f"__{name}__", _comparison(values, getattr(operator, name)))
    if frozen:
        cls.__setattr__ = _refused(cls, "assign to", object.__setattr__)
        cls.__delattr__ = _refused(cls, "delete", object.__delattr__)


def _add_state(cls: Any) -> None:
    """Let a class with slots be pickled and copied, although its instances refuse changes."""
    _add(cls, "__getstate__", _getstate)
    _add(cls, "__setstate__", _setstate)


def _add(cls: type, name: str, function: object) -> None:
    if name not in vars(cls):
        setattr(cls, name, function)


def _first_init(cls: Any, *, frozen: bool) -> Callable[..., None]:
    """Return the ``__init__`` of the first instances, which replaces itself by the compiled one."""
    instances = 0

    def __init__(self: Any, *args: Any, **keywords: Any) -> None:  # noqa: N807 - it becomes this method
        nonlocal instances
        instances += 1
        if instances <= _UNCOMPILED_INSTANCES and _assign(self, cls, args, keywords, frozen=frozen):
            if hasattr(cls, "__post_init__"):
                self.__post_init__()
            return
        # Two threads may both compile: either result is right.
        compiled = _compile_init(cls, frozen=frozen)
        if vars(cls)["__init__"] is __init__:
            cls.__init__ = compiled
        compiled(self, *args, **keywords)

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__signature__ = _Signature(cls, frozen=frozen)
    return __init__


def _assign(self: Any, cls: Any, args: tuple[Any, ...], keywords: dict[str, Any], *, frozen: bool) -> bool:
    """Set the fields of an instance; return whether the arguments fit, as the compiled ``__init__`` checks them."""
    fields = dataclasses.fields(cls)
    positional = [field.name for field in fields if field.init and not field.kw_only]
    given = dict(zip(positional, args, strict=False))
    if len(args) > len(positional) or not given.keys().isdisjoint(keywords):
        return False
    given.update(keywords)
    assign = object.__setattr__ if frozen else setattr
    for field in fields:
        if field.init and field.name in given:
            assign(self, field.name, given.pop(field.name))
        elif field.default is not dataclasses.MISSING:
            assign(self, field.name, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            assign(self, field.name, field.default_factory())
        elif field.init:
            return False
    return not given


class _Signature:
    """The signature of a class, for ``help`` and editors, made when it is asked for."""

    def __init__(self, cls: Any, *, frozen: bool) -> None:
        self._cls = cls
        self._frozen = frozen

    def __get__(self, instance: object, owner: Any) -> Any:
        import inspect

        if owner.__init__ is not self._cls.__init__:  # a subclass with a method of its own
            made = inspect.signature(owner.__init__)
            return made.replace(parameters=[*made.parameters.values()][1:])
        types = {field.name: field.type for field in dataclasses.fields(self._cls)}
        made = inspect.signature(_compile_init(self._cls, frozen=self._frozen))
        parameters = [*made.parameters.values()][1:]
        return made.replace(
            parameters=[each.replace(annotation=types[each.name]) for each in parameters], return_annotation=None
        )


def _compile_init(cls: Any, *, frozen: bool) -> Callable[..., None]:
    """Compile ``__init__`` from the fields of a class."""
    scope: dict[str, Any] = {"_FROM_FACTORY": _FROM_FACTORY, "_set": object.__setattr__}
    positional = ["self"]
    keyword: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(cls):
        name = value = field.name
        parameter = name
        if field.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = field.default
            parameter += f"=_default_{name}"
            value = name if field.init else f"_default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"] = field.default_factory
            parameter += "=_FROM_FACTORY"
            value = f"_make_{name}() if {name} is _FROM_FACTORY else {name}" if field.init else f"_make_{name}()"
        elif not field.init:
            continue
        if field.init:
            (keyword if field.kw_only else positional).append(parameter)
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *keyword] if keyword else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), scope)  # noqa: S102 - of field names
    compiled: Callable[..., None] = scope["__init__"]
    compiled.__qualname__ = f"{cls.__qualname__}.__init__"
    compiled.__module__ = cls.__module__
    return compiled


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that makes a tuple of these attributes."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    if not names:
        return lambda _: ()
    get = operator.attrgetter(*names)
    return lambda instance: (get(instance),)


def _comparison(values: Callable[[Any], tuple[Any, ...]], compare: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def compared(self: Any, other: Any) -> Any:
        return compare(values(self), values(other)) if other.__class__ is self.__class__ else NotImplemented

    return compared


def _hash_of(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


def _refused(cls: type, verb: str, change: Callable[..., None]) -> Callable[..., None]:
    """Return a method that changes no field: a subclass may have attributes of its own."""
    names = frozenset(field.name for field in dataclasses.fields(cls))

    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r}")
        change(self, name, *value)

    return refuse


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
