"""Names that are imported when they are first used, so that importing the module that mentions them costs little."""

import gc
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any


def lazy_names(
    namespace: dict[str, Any], modules: Mapping[str, str], public: Sequence[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Args:
        namespace: ``globals()`` of the package; a name is stored there when it is first used.
        modules: name to the module that defines it; a module's own path stands for the module itself.
        public: ``__all__`` of the package.
    """
    package = namespace["__name__"]

    def load(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            from shale.core.suggestions import suggest  # for errors only

            hint = "" if name.startswith("_") else suggest(name, public)
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        found = _import_all(module)
        value = found if module == f"{package}.{name}" else getattr(found, name)
        namespace[name] = value
        return value

    return load, lambda: sorted(public)


def _import_all(module: str) -> ModuleType:
    """Import a module with all that it imports; without a search for garbage, as imports make none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if was_enabled:
            gc.enable()


def import_at_call(namespace: dict[str, Any], **modules: str) -> list[Callable[..., Any]]:
    """Return stand-ins for functions and classes of other modules, for work that most processes never do.

    The first call imports the module and puts the function in the place of its stand-in: later calls cost nothing.

    Args:
        namespace: ``globals()`` of the module that calls the functions.
        modules: name of a function to the module that defines it.
    """
    return [_stand_in(namespace, name, module) for name, module in modules.items()]


def _stand_in(namespace: dict[str, Any], name: str, module: str) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        found = namespace[name] = getattr(importlib.import_module(module), name)
        return found(*arguments, **keywords)

    return call
