"""A wrong place or credential is answered by one line that says what is wrong, by every way to open a database.

The limit of time is an option here; its default is 15 s until the first answer of a store.
"""

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

import shale
from shale import sync
from shale.engine.location import OPEN_TIMEOUT_S
from shale.errors import (
    AccessDenied,
    DeadlineExceeded,
    InvalidRequestError,
    LatestRecordMissing,
    ShaleError,
    WrongType,
)
from shale.store.opening import FIRST_ANSWER_S
from tests.integration.store.wrong_places import PLACES, SCHEMES, endpoints, store_options

pytestmark = pytest.mark.anyio
ANSWER_S = 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def admin(url: str, **options: Any) -> None:
    async with shale.Admin(url, **options) as handle:
        await handle.states.manifest()


async def blocking(url: str, **options: Any) -> None:
    await anyio.to_thread.run_sync(lambda: sync.Db.open(url, **options))


WAYS: dict[str, Callable[..., Awaitable[object]]] = {
    "open": shale.Db.open,
    "reader": shale.DbReader.open,
    "admin": admin,
    "blocking": blocking,
}


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, str]]:
    with endpoints() as urls:
        yield urls


async def told(way: str, url: str, **options: Any) -> ShaleError:
    """Return the error, which must be one line that names the place."""
    with anyio.fail_after(ANSWER_S), pytest.raises(ShaleError) as caught:
        await WAYS[way](url, **options)
    line = str(caught.value)
    assert "\n" not in line
    assert "topsecret" not in line
    assert url.rpartition("/")[0] in line
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_buckets(places: dict[str, str], scheme: str, way: str, place: str) -> None:
    options = store_options(scheme, places[place])
    limit = "0.3s" if PLACES[place].error is DeadlineExceeded else "10s"  # the others answer at once
    error = await told(way, f"{scheme}://some-bucket/db", store_options=options, open_timeout=limit)
    assert type(error) is PLACES[place].error
    assert PLACES[place].text in str(error)


def test_the_limits_without_options() -> None:
    assert FIRST_ANSWER_S < ANSWER_S < OPEN_TIMEOUT_S


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("url", "config", "class_", "text"),
    [
        ("az://box/db", {}, InvalidRequestError, "set account_name and account_key in store_options"),
        ("s3://box/db", {"access_key_id": "a"}, InvalidRequestError, "set secret_access_key in store_options"),
        ("s3://box/db", {"endpoint": "localhost:9000"}, InvalidRequestError, "is not a URL: write http://localhost"),
        ("s3://box/db", {"endpoint": "ftp://localhost"}, InvalidRequestError, "not a URL such as https://"),
        ("az://box/db", {"azure_storage_endpoint": ""}, InvalidRequestError, "azure_storage_endpoint '' is not a URL"),
        ("s3://box/db", {"aws_endpoint": 9000}, WrongType, "aws_endpoint is of type int: give a URL"),
    ],
)
async def test_settings_that_cannot_be_right(
    way: str, url: str, config: Any, class_: type[ShaleError], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_"))]:
        monkeypatch.delenv(name)
    error = await told(way, url, store_options=shale.StoreOptions(config=config))
    assert type(error) is class_
    assert text in str(error)


@pytest.mark.parametrize("way", WAYS)
async def test_an_endpoint_of_a_variable_that_is_no_url(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    assert "AWS_ENDPOINT_URL 'localhost:9000' is not a URL" in str(await told(way, "s3://box/db"))


@pytest.mark.parametrize("code", [403, 500])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_machine_without_credentials_says_which_to_set(scheme: str, code: int) -> None:
    """The service of a cloud that gives a machine its credentials is not there, or refuses."""
    from obstore.exceptions import GenericError

    from shale.store.cloud_store.translate_errors import translated

    service = "http://169.254.169.254/latest/api/token"
    error = GenericError(f"Generic error: Error performing GET {service} - Server returned non-2xx status code: {code}")
    told = str(translated(error, f"{scheme}://box", "get", "db/a"))
    assert "no credentials were found, and this machine has none: set " in told
    assert "in store_options, or " in told


READ_ONLY = "/proc/self"
"""A directory in which not even root can create anything."""


@pytest.mark.parametrize("way", ["open", "blocking"])
async def test_a_directory_that_cannot_be_written(way: str) -> None:
    assert type(await told(way, f"file://{READ_ONLY}/db")) is AccessDenied


async def test_a_directory_without_a_database() -> None:
    error = await told("reader", f"file://{READ_ONLY}/db")
    assert type(error) is LatestRecordMissing
    assert "there is no database at db; check the URL" in str(error)


@pytest.fixture
def read_only_database(tmp_path: Path) -> Iterator[str]:
    """Create a database whose directories only their owner may write, and become another user if need be."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        url = f"file://{folder}/db"
        with sync.Db.open(url) as db:
            db.put(b"k", b"v")
        for warm_up in (sync.DbReader.open(url), sync.Db.open(f"file://{tmp_path}/db")):
            warm_up.close()  # modules that another user could not read are imported
        for each in (Path(folder), *Path(folder).rglob("*/")):
            each.chmod(0o555)
        if os.geteuid() == 0:
            os.seteuid(65534)
        try:
            yield url
        finally:
            os.seteuid(os.getuid())
            for each in (Path(folder), *Path(folder).rglob("*/")):
                each.chmod(0o755)


@pytest.mark.parametrize("way", ["open", "reader", "blocking"])
async def test_a_database_that_may_only_be_read(read_only_database: str, way: str) -> None:
    """Also a reader, which keeps its state by a checkpoint; it says how to read without one."""
    error = await told(way, read_only_database)
    assert type(error) is AccessDenied
    assert ("open with follow_latest=True" in str(error)) is (way == "reader")
    with sync.DbReader.open(read_only_database, follow_latest=True) as reader:
        assert reader.get(b"k") == b"v"
