"""Functions whose module is imported with their first call."""

import sys

import pytest

import shale
from shale.core.lazy_names import import_at_call


def test_the_first_call_imports_the_module_and_takes_the_place_of_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are passed on."""
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    namespace: dict[str, object] = {}
    (stand_in,) = import_at_call(namespace, rgb_to_hsv="colorsys")
    namespace["rgb_to_hsv"] = stand_in
    assert "colorsys" not in sys.modules
    assert stand_in(1.0, 1.0, b=1.0) == (0.0, 0.0, 1.0)
    assert namespace["rgb_to_hsv"] is sys.modules["colorsys"].rgb_to_hsv


def test_an_error_is_that_of_the_function() -> None:
    """Also at the first call."""
    (stand_in,) = import_at_call({}, rgb_to_hsv="colorsys")
    with pytest.raises(TypeError, match="rgb_to_hsv"):
        stand_in()


def test_a_misspelled_name_is_told_the_closest_one() -> None:
    with pytest.raises(AttributeError, match=r"module 'shale' has no attribute 'DBReader'; did you mean DbReader\?"):
        _ = shale.DBReader  # type: ignore[attr-defined]
