"""Settings for all tests."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A shared machine may take any time for one example; hanging tests are the timeout's business.
settings.register_profile("shale", deadline=None)
settings.load_profile("shale")

PLACES = ("CLOUD_PROVIDER", "LOCAL_PATH", "SHALE_CONFIG", "SHALE_PATH", "SHALE_STORE", "SHALE_URL")

# A shell that starts the tests in the background has told them, and so what they start, to ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_place_left_behind() -> Iterator[None]:
    """What a command or SlateDB's library has said of where databases are must not reach the next test."""
    environment = os.environ
    before = {name: environment.get(name) for name in PLACES}
    yield
    for name, value in before.items():
        if value is not None:
            environment[name] = value
        else:
            environment.pop(name, None)


@pytest.fixture(scope="session")
def kernels_loaded() -> bool:
    """For tests that measure memory: a thread that an earlier test has left may still be loading kernels."""
    from shale.kernels.choice import load_kernels

    return load_kernels()
