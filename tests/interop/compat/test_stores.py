"""Object stores: both packages accept and refuse the same names, and open each other's databases."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slatedb import uniffi as wheel

from shale.compat.slatedb import uniffi as ours

Step = Callable[[Any], Any]


def outcome(api: Any, step: Step) -> str:
    """Return the kind of the outcome."""
    try:
        return type(step(api)).__name__
    except api.Error as error:
        return f"Error.{type(error).__name__}"


def assert_alike(step: Step) -> None:
    assert outcome(ours, step) == outcome(wheel, step)


URLS = "memory:/// memory: memory:///path file:/// file:///tmp/x s3://bucket/path nope://x notaurl"


@pytest.mark.parametrize("url", ["", *URLS.split()])
def test_urls_are_resolved_alike(url: str) -> None:
    assert_alike(lambda api: api.ObjectStore.resolve(url))


def test_every_store_in_memory_is_its_own() -> None:
    async def main() -> None:
        first, second = ours.ObjectStore.resolve("memory:///"), ours.ObjectStore.resolve("memory:///")
        db = await ours.DbBuilder("db", first).build()
        await db.put(b"k", b"v")
        await db.shutdown()
        other = await ours.DbBuilder("db", second).build()
        assert await other.get(b"k") is None
        await other.shutdown()

    asyncio.run(main())


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"CLOUD_PROVIDER": "nonsense"},
        {"CLOUD_PROVIDER": "local"},
        {"CLOUD_PROVIDER": "local", "LOCAL_PATH": "."},
        {"CLOUD_PROVIDER": "LOCAL", "LOCAL_PATH": "."},
        {"CLOUD_PROVIDER": "memory"},
    ],
)
def test_variables_are_understood_alike(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("CLOUD_PROVIDER", "LOCAL_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path) if value == "." else value)
    assert_alike(lambda api: api.ObjectStore.from_env(None))


def test_variables_can_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LOCAL_PATH", raising=False)
    monkeypatch.setenv("CLOUD_PROVIDER", "local")
    file = tmp_path / "variables"
    file.write_text(f'# where\nexport LOCAL_PATH="{tmp_path}"\n')
    store = ours.ObjectStore.from_env(str(file))

    async def main() -> None:
        await (await ours.DbBuilder("db", store).build()).shutdown()

    asyncio.run(main())
    assert (tmp_path / "db" / "manifest").is_dir()


@pytest.mark.parametrize("kind", ["S3", "AZURE", "GCS", "LOCAL", "IN_MEMORY"])
def test_builders_refuse_what_is_missing_alike(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_BUCKET", "AWS_BUCKET_NAME", "GOOGLE_BUCKET", "GOOGLE_BUCKET_NAME", "AZURE_CONTAINER_NAME"):
        monkeypatch.delenv(name, raising=False)
    assert_alike(lambda api: api.ObjectStoreBuilder(api.ObjectStoreType[kind]).build())

    def used_twice(api: Any) -> Any:
        builder = api.ObjectStoreBuilder(api.ObjectStoreType.IN_MEMORY)
        builder.build()
        return builder.build()

    assert_alike(used_twice)


def test_a_local_store_needs_its_directory(tmp_path: Path) -> None:
    def local(api: Any, path: Path, key: str = "local_path") -> Any:
        builder = api.ObjectStoreBuilder(api.ObjectStoreType.LOCAL)
        builder.with_config(key, str(path))
        return builder.build()

    assert_alike(lambda api: local(api, tmp_path))
    assert_alike(lambda api: local(api, tmp_path / "missing"))
    assert_alike(lambda api: local(api, tmp_path, "path"))
    assert_alike(lambda api: api.ObjectStoreBuilder.from_url(f"file://{tmp_path}/missing").build())


@pytest.mark.parametrize(("writer", "reader"), [(wheel, ours), (ours, wheel)], ids=["theirs", "ours"])
def test_one_opens_what_the_other_wrote(writer: Any, reader: Any, tmp_path: Path) -> None:
    def store(api: Any) -> Any:
        builder = api.ObjectStoreBuilder(api.ObjectStoreType.LOCAL)
        builder.with_config("local_path", str(tmp_path))
        return builder.build()

    async def main() -> None:
        first = await writer.DbBuilder("db", store(writer)).build()
        for number in range(50):
            await first.put(b"%03d" % number, b"v%d" % number)
        await first.shutdown()
        second = await reader.DbBuilder("db", store(reader)).build()
        everything = reader.KeyRange(start=None, start_inclusive=True, end=None, end_inclusive=True)
        rows = await (await second.scan(everything)).next_batch(100)
        assert [(bytes(row.key), bytes(row.value)) for row in rows] == [(b"%03d" % n, b"v%d" % n) for n in range(50)]
        last = await second.put(b"more", b"v")
        assert last.seqnum() == 51
        await second.shutdown()

    asyncio.run(main())
