"""The settings that a reload is said to change are settings."""

from typing import Any

import pytest

from shale_cli.framework.daemons import DAEMONS, settings_class


@pytest.mark.parametrize("daemon", DAEMONS)
def test_settings_that_are_reloaded_exist(daemon: str) -> None:
    cls = settings_class(daemon)
    for name in cls.RELOADED:
        section: Any = cls
        *above, last = name.split(".")
        for each in above:
            annotation = section.model_fields[each].annotation
            found = [one for one in (annotation, *getattr(annotation, "__args__", ())) if hasattr(one, "model_fields")]
            section = found[0]
        assert last in section.model_fields, name
