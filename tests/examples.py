"""How many examples a property test runs.

``make test`` runs as many as the test says; ``SHALE_TEST_EXAMPLES=20`` runs 20 times as many (``make fuzz``).
"""

import os

from hypothesis import settings

VARIABLE = "SHALE_TEST_EXAMPLES"
DEFAULT_EXAMPLES = 40
"""Of a test that says nothing."""


def examples(count: int) -> int:
    """Return the number of examples to run, for a test that runs ``count`` by default."""
    return count * int(os.environ.get(VARIABLE) or 1)


def load_profile() -> None:
    """Select the settings of all tests, which each may refine.

    A shared machine may take any time for one example; hanging tests are the timeout's business.
    """
    settings.register_profile("shale", deadline=None, max_examples=examples(DEFAULT_EXAMPLES))
    settings.load_profile("shale")
