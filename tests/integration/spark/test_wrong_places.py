"""A read of Spark at a wrong place fails while it is planned, with one line; no session is needed."""

from collections.abc import Iterator

import pytest

from shale.errors import ShaleError
from shale.store import retry
from shale_spark.source.filters import requested_keys
from shale_spark.source.options import SparkReadOptions
from shale_spark.source.planner import plan_read
from shale_spark.tasks import run_async
from tests.integration.store.wrong_places import PLACES, endpoints, store_options


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, str]]:
    with endpoints() as urls:
        yield urls


def told(given: dict[str, str]) -> ShaleError:
    options = SparkReadOptions.parse(given)
    with pytest.raises(ShaleError) as caught:
        run_async(lambda env: plan_read(options, requested_keys(options), env))
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("scheme", ["s3", "az"])
def test_buckets(places: dict[str, str], scheme: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused credentials are not retried."""
    monkeypatch.setattr(retry, "FIRST_ANSWER_S", 0.5)
    given = {f"store.{name}": text for name, text in store_options(scheme, places[place]).config.items()}
    error = told({"url": f"{scheme}://some-bucket/db", **given})
    assert type(error) is PLACES[place].error
    assert PLACES[place].text in str(error)
    assert f"{scheme}://some-bucket" in str(error)


def test_a_container_without_account() -> None:
    assert "az://some-bucket: Account must be specified: set account_name" in str(told({"url": "az://some-bucket/db"}))


def test_a_directory_without_a_database() -> None:
    assert "there is no database at db" in str(told({"url": "file:///proc/self/db"}))
