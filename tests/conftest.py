"""Settings for all tests."""

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest

from tests.examples import load_profile

pytest_plugins = ("tests.cas_selection", "tests.failed_tests", "tests.fault_selection", "tests.tiers", "tests.timing")

load_profile()

PREFIXES = ("AWS_", "CLOUD_PROVIDER", "LOCAL_PATH", "SHALE_")
"""Variables with these beginnings locate databases, or are settings."""

# A shell that starts the tests in the background has told them, and so what they start, to ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _restore_settings() -> Iterator[None]:
    """Restore the variables that a test, a command or SlateDB's library has set."""
    environment = os.environ
    before = {name: value for name, value in environment.items() if name.startswith(PREFIXES)}
    yield
    for name in [name for name in environment if name.startswith(PREFIXES) and name not in before]:
        del environment[name]
    environment.update(before)


@pytest.fixture(autouse=True)
def _no_embedded_services() -> None:
    """Let writers run neither compactor nor collector unless a test asks: most tests count SSTs and requests."""
    from shale.engine.configure import configure

    configure(compactor=False, gc=False)


def pytest_configure(config: pytest.Config) -> None:
    """Compile the kernels again if their sources have changed."""
    if not hasattr(config, "workerinput") and os.environ.get("SHALE_KERNELS") != "off":
        from shale.kernels.compiler.module import ensure_current

        ensure_current()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector: all that is made stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Take twelve thousand tests and all modules out of the collector's sight: they stay until the end."""
    gc.collect()
    gc.freeze()
