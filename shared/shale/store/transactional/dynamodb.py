"""Commit records in a table of DynamoDB.

The partition of an item is its directory, so that a transaction and an index stay within one.  Unfinished records have
an attribute that a sparse local index holds: unlike a global one, it can be read consistently.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread
import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from shale.errors import InvalidRequestError, UnavailableError
from shale.store.location import without_credentials
from shale.store.transactional.port import NO_TABLES, SCHEMA_VERSION, CommitRecord, Slot, require_schema

T = TypeVar("T")
Item = Mapping[str, Mapping[str, Any]]

_REQUESTS_MAX = 16
_MARK = "#mark"
"""The name of the item that holds the low-water mark of its directory; no object has it."""
_INDEX = "unfinished"
_SCHEMA_DIRECTORY = "#schema"
_BOOLEANS = ("is_committed", "is_deleted")
_NUMBERS = ("size", "created_at_ms")
_TEXTS = ("destination", "source", "put_id", "checksum")


class DynamodbTransactionalStore:
    """The table ``dynamodb://region/table``; ``?endpoint=`` names another server.  Credentials are the client's."""

    def __init__(self, url: str) -> None:
        self._url = without_credentials(url)
        address = urlsplit(url)
        self._table = address.path.strip("/")
        self._is_schema_known = False
        self._limiter: anyio.CapacityLimiter | None = None
        if not self._table or not address.hostname:
            raise InvalidRequestError(f"{self._url}: write dynamodb://region/table")
        endpoint = parse_qs(address.query).get("endpoint", [None])[0]
        config = Config(retries={"total_max_attempts": 2}, connect_timeout=5, read_timeout=10)
        self._client = boto3.client("dynamodb", region_name=address.hostname, endpoint_url=endpoint, config=config)

    @property
    def url(self) -> str:
        """See ``TransactionalStore``."""
        return self._url

    async def create_schema(self) -> None:
        """See ``TransactionalStore``."""

        def create() -> None:
            with suppress(self._client.exceptions.ResourceInUseException):
                self._client.create_table(**_table(self._table))
            self._client.get_waiter("table_exists").wait(TableName=self._table, WaiterConfig={"Delay": 1})
            version = {**_key(_SCHEMA_DIRECTORY, "records"), "version": {"N": str(SCHEMA_VERSION)}}
            with suppress(self._client.exceptions.ConditionalCheckFailedException):
                self._client.put_item(
                    TableName=self._table, Item=version, ConditionExpression="attribute_not_exists(version)"
                )

        await self._send(create)
        require_schema(self._url, await self.schema_version())
        self._is_schema_known = True

    async def schema_version(self) -> int | None:
        """See ``TransactionalStore``."""
        try:
            item = await self._send(lambda: self._get(_SCHEMA_DIRECTORY, "records"))
        except InvalidRequestError:  # no such table
            return None
        return int(item["version"]["N"]) if item else None

    async def insert(self, record: CommitRecord, slot: Slot | None) -> CommitRecord | None:
        """See ``TransactionalStore``."""

        def insert() -> CommitRecord | None:
            put = {
                "TableName": self._table,
                "Item": _item(record),
                "ConditionExpression": "attribute_not_exists(#name)",
                "ExpressionAttributeNames": {"#name": "name"},
            }
            writes: list[dict[str, Any]] = [{"Put": put}]
            if slot is not None:
                check = {
                    "TableName": self._table,
                    "Key": _key(slot.namespace, _MARK),
                    "ConditionExpression": "attribute_not_exists(id) OR id < :id",
                    "ExpressionAttributeValues": {":id": {"N": str(slot.id)}},
                }
                writes.append({"ConditionCheck": check})
            try:
                self._client.transact_write_items(TransactItems=writes)
            except self._client.exceptions.TransactionCanceledException as error:
                reasons = {reason.get("Code") for reason in error.response.get("CancellationReasons", ())}
                found = self._record(record.destination)
                if found is None and reasons - {"None", "ConditionalCheckFailed"}:
                    raise  # a conflict with another transaction: nothing is known about the mark
                return found
            return record

        return await self._run(insert)

    async def get(self, destination: str) -> CommitRecord | None:
        """See ``TransactionalStore``."""
        return await self._run(lambda: self._record(destination))

    async def set_committed(self, record: CommitRecord) -> None:
        """See ``TransactionalStore``."""
        await self._run(
            lambda: self._update(
                record.destination,
                "SET is_committed = :true REMOVE unfinished",
                "put_id = :put_id AND is_deleted = :false",
                {":put_id": {"S": record.put_id}, ":true": {"BOOL": True}, ":false": {"BOOL": False}},
            )
        )

    async def set_deleted(self, destinations: Sequence[str]) -> None:
        """See ``TransactionalStore``."""

        def mark() -> None:
            for destination in destinations:
                values: Item = {":true": {"BOOL": True}, ":destination": {"S": destination}}
                change = "SET is_deleted = :true, unfinished = :destination"
                self._update(destination, change, "attribute_exists(put_id)", values)

        await self._run(mark)

    async def remove_deleted(self, destinations: Sequence[str]) -> None:
        """See ``TransactionalStore``."""

        def remove() -> None:
            for destination in destinations:
                try:
                    self._client.delete_item(
                        TableName=self._table,
                        Key=_key_of(destination),
                        ConditionExpression="is_deleted = :true",
                        ExpressionAttributeValues={":true": {"BOOL": True}},
                    )
                except self._client.exceptions.ConditionalCheckFailedException:
                    continue

        await self._run(remove)

    async def unfinished(self, prefix: str) -> Sequence[CommitRecord]:
        """See ``TransactionalStore``."""
        return await self._run(lambda: self._scan_records(prefix, index=_INDEX))

    async def records(self, prefix: str) -> Sequence[CommitRecord]:
        """See ``TransactionalStore``."""
        return await self._run(lambda: self._scan_records(prefix))

    async def low_water_mark(self, namespace: str) -> int:
        """See ``TransactionalStore``."""
        item = await self._run(lambda: self._get(namespace, _MARK))
        return int(item["id"]["N"]) if item else 0

    async def raise_low_water_mark(self, namespace: str, id: int) -> int:  # noqa: A002 - the port's name
        """See ``TransactionalStore``."""

        def raise_mark() -> int:
            try:
                self._client.update_item(
                    TableName=self._table,
                    Key=_key(namespace, _MARK),
                    UpdateExpression="SET id = :id",
                    ConditionExpression="attribute_not_exists(id) OR id < :id",
                    ExpressionAttributeValues={":id": {"N": str(id)}},
                )
            except self._client.exceptions.ConditionalCheckFailedException:
                item = self._get(namespace, _MARK)
                assert item is not None, "a mark that is high enough exists"
                return int(item["id"]["N"])
            return id

        return await self._run(raise_mark)

    async def low_water_marks(self, prefix: str) -> dict[str, int]:
        """See ``TransactionalStore``."""

        def marks() -> dict[str, int]:
            found = {item["directory"]["S"]: int(item["id"]["N"]) for item in self._scan(prefix) if _is_mark(item)}
            return dict(sorted(found.items()))

        return await self._run(marks)

    async def import_committed(self, records: Sequence[CommitRecord]) -> None:
        """See ``TransactionalStore``."""
        for record in records:
            await self.insert(record, None)

    async def remove_all(self, *prefixes: str) -> None:
        """See ``TransactionalStore``."""

        def remove() -> None:
            for item in self._scan(*prefixes):
                self._client.delete_item(TableName=self._table, Key={key: item[key] for key in ("directory", "name")})

        await self._run(remove)

    async def aclose(self) -> None:
        """See ``TransactionalStore``."""
        await anyio.to_thread.run_sync(self._client.close)

    async def _run(self, call: Callable[[], T]) -> T:
        """Run requests on a table of this release."""
        if not self._is_schema_known:
            require_schema(self._url, await self.schema_version())
            self._is_schema_known = True
        return await self._send(call)

    async def _send(self, call: Callable[[], T]) -> T:
        """Run requests in a thread."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_REQUESTS_MAX)
        try:
            return await anyio.to_thread.run_sync(call, limiter=self._limiter)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "ResourceNotFoundException":
                raise InvalidRequestError(f"{self.url}: {NO_TABLES}") from error
            raise UnavailableError(f"{self.url}: {error}") from error
        except BotoCoreError as error:
            raise UnavailableError(f"{self.url}: {error}") from error

    def _get(self, directory: str, name: str) -> Item | None:
        response = self._client.get_item(TableName=self._table, Key=_key(directory, name), ConsistentRead=True)
        found: Item | None = response.get("Item")
        return found

    def _record(self, destination: str) -> CommitRecord | None:
        directory, _, name = destination.rpartition("/")
        item = self._get(directory or "/", name)
        return None if item is None else _record_of(item)

    def _update(self, destination: str, change: str, condition: str, values: Item) -> None:
        try:
            self._client.update_item(
                TableName=self._table,
                Key=_key_of(destination),
                UpdateExpression=change,
                ConditionExpression=condition,
                ExpressionAttributeValues=values,
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return

    def _scan_records(self, prefix: str, *, index: str | None = None) -> list[CommitRecord]:
        found = [_record_of(item) for item in self._scan(prefix, index=index) if not _is_mark(item)]
        return sorted(found, key=lambda record: record.destination)

    def _scan(self, *prefixes: str, index: str | None = None) -> list[Item]:
        request: dict[str, Any] = {"TableName": self._table, "ConsistentRead": True}
        if index is not None:
            request["IndexName"] = index
        items: list[Item] = []
        for page in self._client.get_paginator("scan").paginate(**request):
            items += [item for item in page["Items"] if _path(item).startswith(prefixes) and not _is_schema(item)]
        return items


def _table(name: str) -> dict[str, Any]:
    attributes = ("directory", "name", "unfinished")
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": each, "AttributeType": "S"} for each in attributes],
        "KeySchema": _schema("name"),
        "LocalSecondaryIndexes": [
            {"IndexName": _INDEX, "KeySchema": _schema("unfinished"), "Projection": {"ProjectionType": "ALL"}}
        ],
    }


def _schema(sorted_by: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": "directory", "KeyType": "HASH"},
        {"AttributeName": sorted_by, "KeyType": "RANGE"},
    ]


def _key(directory: str, name: str) -> dict[str, dict[str, Any]]:
    return {"directory": {"S": directory}, "name": {"S": name}}


def _key_of(destination: str) -> dict[str, dict[str, Any]]:
    directory, _, name = destination.rpartition("/")
    return _key(directory or "/", name)


def _path(item: Item) -> str:
    """Return the destination of a record or the directory of a mark, with its slash."""
    if _is_mark(item):
        return f"{item['directory']['S']}/"
    return str(item.get("destination", item["directory"])["S"])


def _is_mark(item: Item) -> bool:
    return bool(item["name"]["S"] == _MARK)


def _is_schema(item: Item) -> bool:
    return bool(item["directory"]["S"] == _SCHEMA_DIRECTORY)


def _item(record: CommitRecord) -> dict[str, dict[str, Any]]:
    item = _key_of(record.destination)
    item |= {name: {"S": getattr(record, name)} for name in _TEXTS}
    item |= {name: {"N": str(getattr(record, name))} for name in _NUMBERS}
    item |= {name: {"BOOL": getattr(record, name)} for name in _BOOLEANS}
    if record.is_deleted or not record.is_committed:
        item["unfinished"] = {"S": record.destination}
    return item


def _record_of(item: Item) -> CommitRecord:
    return CommitRecord(
        destination=item["destination"]["S"],
        source=item["source"]["S"],
        put_id=item["put_id"]["S"],
        checksum=item["checksum"]["S"],
        size=int(item["size"]["N"]),
        created_at_ms=int(item["created_at_ms"]["N"]),
        is_committed=item["is_committed"]["BOOL"],
        is_deleted=item["is_deleted"]["BOOL"],
    )
