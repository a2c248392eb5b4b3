"""Settings for all tests."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

pytest_plugins = ("tests.cas_selection", "tests.fault_selection", "tests.timing")

# A shared machine may take any time for one example; hanging tests are the timeout's business.
settings.register_profile("shale", deadline=None)
settings.load_profile("shale")

PLACES = ("CLOUD_PROVIDER", "LOCAL_PATH", "SHALE_CONFIG", "SHALE_PATH", "SHALE_STORE", "SHALE_URL")

# A shell that starts the tests in the background has told them, and so what they start, to ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _restore_database_locations() -> Iterator[None]:
    """Restore the variables that a command or SlateDB's library set to locate a database."""
    environment = os.environ
    before = {name: environment.get(name) for name in PLACES}
    yield
    for name, value in before.items():
        if value is not None:
            environment[name] = value
        else:
            environment.pop(name, None)


def pytest_configure(config: pytest.Config) -> None:
    """Compile the kernels again if their sources have changed."""
    if not hasattr(config, "workerinput") and os.environ.get("SHALE_KERNELS") != "off":
        from shale.kernels.compiler.module import ensure_current

        ensure_current()
