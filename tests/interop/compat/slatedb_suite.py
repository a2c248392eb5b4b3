"""A pytest plugin under which the tests of SlateDB's Python binding run against ``shale.compat.slatedb``.

    pytest -p tests.interop.compat.slatedb_suite CHECKOUT/bindings/python/tests

It answers for ``slatedb`` and ``slatedb.uniffi``, and runs coroutine functions, each on a loop of its own.  Nothing
else may import it: from then on the process knows no other ``slatedb``.
"""

import asyncio
import inspect
import sys
from typing import Any

import pytest

import shale.compat.slatedb
import shale.compat.slatedb.uniffi
from tests.interop.compat.slatedb_exclusions import EXCLUDED

sys.modules["slatedb"] = shale.compat.slatedb
sys.modules["slatedb.uniffi"] = shale.compat.slatedb.uniffi


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of the tests."""
    config.addinivalue_line("markers", "asyncio: runs on an event loop")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the excluded tests."""
    for item in items:
        reason = EXCLUDED.get(item.name)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """Run a coroutine function as a test."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
