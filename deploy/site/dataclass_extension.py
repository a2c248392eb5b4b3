"""Shows classes of ``shale.core.lazy_dataclass`` with their parameters, as those of the standard decorator."""

from typing import Any

import griffe

LAZY = "shale.core.lazy_dataclass.dataclass"
STANDARD = "dataclasses.dataclass"


class LazyDataclasses(griffe.Extension):
    """Names the standard decorator where a module imports ours; griffe's own extension runs afterwards."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Called when the members of a module are known."""
        found = mod.members.get("dataclass")
        if isinstance(found, griffe.Alias) and found.target_path == LAZY:
            found.target_path = STANDARD
