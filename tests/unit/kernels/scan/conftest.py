"""What all tests of the kernels of scans need."""

import pytest

from shale.kernels.dispatch import use_kernels


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")
