"""Settings that name code of the user."""

import sys
from importlib.metadata import EntryPoint

import pytest

from shale import plugins
from shale.errors import InvalidRequestError
from shale.plugins import COMPACTION_FILTERS, resolve


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "users_code.py").write_text("class Forget:\n    inner = len\n\nNUMBER = 3\n")
    (tmp_path / "broken_code.py").write_text("import no_such_module_anywhere\n")
    (tmp_path / "ending_code.py").write_text("raise SystemExit(2)\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("users_code", None)


@pytest.fixture
def registered(monkeypatch):
    points = [
        EntryPoint("forget", "users_code:Forget", COMPACTION_FILTERS),
        EntryPoint("audit", "users_code:Missing", COMPACTION_FILTERS),
        EntryPoint("twice", "users_code:Forget", COMPACTION_FILTERS),
        EntryPoint("twice", "other_code:Forget", COMPACTION_FILTERS),
        EntryPoint("forget", "users_code:Forget", COMPACTION_FILTERS),  # the same distribution, found on two paths
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: [p for p in points if p.group == group])


@pytest.mark.usefixtures("module")
def test_a_module_and_an_attribute():
    assert resolve(COMPACTION_FILTERS, "users_code:Forget").__name__ == "Forget"
    assert resolve(COMPACTION_FILTERS, "users_code:Forget.inner") is len


@pytest.mark.usefixtures("module", "registered")
def test_a_registered_name():
    assert resolve(COMPACTION_FILTERS, "forget").__name__ == "Forget"


@pytest.mark.usefixtures("module", "registered")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("forgot", "no compaction filter is called 'forgot'; registered: audit, forget, twice"),
        ("audit", "'audit': users_code has no Missing"),
        ("users_code:Nothing", "users_code has no Nothing"),
        ("users_code:NUMBER", "not callable"),
        ("broken_code:x", "cannot import broken_code: ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("twice", "registered more than once; write one of other_code:Forget, users_code:Forget"),
        ("ending_code:x", "cannot import ending_code: SystemExit: 2"),
        (":x", "module:attribute"),
        ("users_code:", "module:attribute"),
    ],
)
def test_what_cannot_be_used_is_named(name, told):
    with pytest.raises(InvalidRequestError, match=told):
        resolve(COMPACTION_FILTERS, name)
