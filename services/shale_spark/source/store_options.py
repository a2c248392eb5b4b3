"""Options of the stores of Spark jobs."""

from collections.abc import Mapping

from shale.core.settings_values import parse_integer
from shale.store.options import RetryPolicy, StoreOptions

_RETRIES_MAX = 10
"""A task that cannot reach its store fails after some seconds, and Spark tries it elsewhere."""
_REQUEST_LIMIT_S = 120.0
"""How long one request may take with its retries.  A store that has answered nothing is given up after 15 s."""


def task_store_options(given: Mapping[str, str]) -> StoreOptions:
    """Return the options of a job, with limits for tasks.

    They become part of Spark's plans, where no secrets may be.  So each process adds what its own variables
    ``SHALE_STORE__…`` set when it connects.

    Args:
        given: ``max_retries``, and obstore's settings such as ``endpoint``.

    Raises:
        InvalidRequestError: an impossible value.
    """
    config = dict(given)
    retries = parse_integer(config.pop("max_retries", str(_RETRIES_MAX)), name="store.max_retries")
    policy = RetryPolicy(retries_max=retries, timeout_s=_REQUEST_LIMIT_S, fail_fast_auth=True)
    return StoreOptions(config=config, retry=policy, reads_environment=True)
