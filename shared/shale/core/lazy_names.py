"""Names of a package that are imported when they are first used, so that importing the package costs little."""

import importlib
from collections.abc import Callable, Mapping, Sequence
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
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = importlib.import_module(module)
        value = found if module == f"{package}.{name}" else getattr(found, name)
        namespace[name] = value
        return value

    return load, lambda: sorted(public)
