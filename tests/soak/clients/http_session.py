"""Clients over HTTP: of the writer, and of readers."""

from typing import Any, ClassVar

from tests.soak.clients.http_requests import HttpRequests, path_of
from tests.soak.clients.session import ClientSession, Result, Shared, wall_ms
from tests.soak.history.values import elements_in, joined, name_in, padded

SIZES = (50, 400, 3000)
SCANS = ("scan", "scan-page", "snapshot")


class HttpWriterSession(ClientSession):
    """Reads and writes rows, batches, transactions, scans and snapshots."""

    weights: ClassVar = {
        "write_once": 24,
        "overwrite": 16,
        "read": 16,
        "write_batch": 8,
        "scan": 8,
        "append_to_lists": 12,
        "merge_into_lists": 10,
        "read_lists": 6,
        "take_or_release_lock": 5,
        "delete": 5,
        "write_with_lifetime": 8,
        "read_with_lifetime": 10,
    }

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name, "http")
        self._http = HttpRequests(shared, "writers")
        self._own: list[str] = []
        self._held: tuple[str, str] | None = None

    def _put(self, key: str, name: str | None) -> Result:
        if name is None:
            return self._http.ask("DELETE", path_of(key), None, {})[0]
        return self._http.ask("PUT", path_of(key), padded(name, self.rng.choice(SIZES)), {})[0]

    def write_once(self) -> Result:
        """Write a key that no other operation writes."""
        name = self.next_name()
        key = f"once/{name}"
        result = self.record("write", key, name, lambda: self._put(key, name))
        if result.outcome == "ok" and len(self._own) < 200:
            self._own.append(key)
        return result

    def delete(self) -> Result:
        """Delete a key of ``write_once``."""
        if not self._own:
            return self.write_once()
        key = self._own.pop(self.rng.randrange(len(self._own)))
        return self.record("write", key, None, lambda: self._put(key, None))

    def overwrite(self) -> Result:
        """Write a register."""
        key, name = self.register(), self.next_name()
        return self.record("write", key, name, lambda: self._put(key, name))

    def read(self) -> Result:
        """Read a register."""
        key = self.register()
        return self.record("read", key, None, lambda: read_row(self._http, key))

    def write_with_lifetime(self) -> Result:
        """Write a row that expires, over rows that do or do not."""
        key, name = self.expiring(), self.next_name()
        value = padded(name, self.rng.choice(SIZES))
        if self.rng.random() < 0.3:
            return self.record("write", key, name, lambda: self._http.ask("PUT", path_of(key), value, {})[0])
        meaning, when = self.lifetime()
        if meaning == "for":
            headers = {"X-Shale-TTL-Ms": str(int(when * 1000))}
        else:
            headers = {"X-Shale-Expire-At": str(wall_ms(when))}
        written = [name, meaning, when]
        return self.record("write_until", key, written, lambda: self._http.ask("PUT", path_of(key), value, headers)[0])

    def read_with_lifetime(self) -> Result:
        """Read a row that may have expired; it is shown until a flush or a compaction removes it."""
        key = self.expiring(is_read=True)
        return self.record("read", key, None, lambda: read_row(self._http, key))

    def write_batch(self) -> Result:
        """Write all keys of a group."""
        group, name = self.group(), self.next_name()
        ops: list[Any] = [["put", key.encode(), padded(name, 60)] for key in self.members(group)]
        return self.record("batch", group, name, lambda: self._http.call("/v1/batch", {"ops": ops})[0])

    def scan(self) -> Result:
        """Read all keys of a group."""
        group = self.group()
        return self.record("scan", group, None, lambda: scan_group(self._http, group, self.rng.choice(SCANS)))

    def read_lists(self) -> Result:
        """Read lists of one state."""
        keys = self.list_keys()
        group = keys[0].rpartition("/")[0] + "/"
        return self.record("txn", group, None, lambda: read_lists(self._http, keys))

    def append_to_lists(self) -> Result:
        """Read lists, and append to some of them if none has changed meanwhile; write the list or merge an operand."""
        keys = self.list_keys()
        group = keys[0].rpartition("/")[0] + "/"
        element = self.next_name()
        found, values = self._http.get_many(keys)
        if found.outcome != "ok":
            return Result("fail")
        lists = {key: elements_in(value) for key, value in zip(keys, values, strict=True)}
        changed = self.rng.sample(keys, self.rng.choice((1, 2)))
        compare = [
            ["absent", key.encode()] if value is None else ["value", key.encode(), value]
            for key, value in zip(keys, values, strict=True)
        ]
        ops = [
            ["merge", key.encode(), joined([element])]
            if self.rng.random() < 0.5
            else ["put", key.encode(), joined([*lists[key], element])]
            for key in changed
        ]
        steps = [["r", key, lists[key]] for key in keys] + [["append", key, element] for key in changed]
        body = {"compare": compare, "ops": ops}
        return self.record("txn", group, steps, lambda: self._http.call("/v1/txn", body)[0])

    def merge_into_lists(self) -> Result:
        """Append to one or two lists without reading them."""
        keys = self.list_keys()
        group = keys[0].rpartition("/")[0] + "/"
        element = self.next_name()
        changed = keys[: self.rng.choice((1, 2))]
        steps = [["append", key, element] for key in changed]
        operand = joined([element])
        ops = [["merge", key.encode(), operand] for key in changed]

        def merge() -> Result:
            if len(changed) == 1:
                return self._http.ask("PATCH", path_of(changed[0]), operand, {})[0]
            return self._http.call("/v1/batch", {"ops": ops})[0]

        return self.record("txn", group, steps, merge)

    def take_or_release_lock(self) -> Result:
        """Take a lock by a condition, or release the one that this session has."""
        if self._held is not None:
            key, token = self._held
            self._held = None
            body: Any = {"compare": [["value", key.encode(), token.encode()]], "ops": [["delete", key.encode()]]}
            return self.record("cas", key, [token, None], lambda: self._http.call("/v1/txn", body)[0])
        key, token = self.lock_key(), self.next_name()
        found, value = self._http.get(key)
        if found.outcome != "ok":
            return found
        holder = name_in(value)
        if holder is not None and self.rng.random() < 0.8:
            return Result("ok")
        compare = ["absent", key.encode()] if value is None else ["value", key.encode(), value]
        body = {"compare": [compare], "ops": [["put", key.encode(), token.encode()]]}
        result = self.record("cas", key, [holder, token], lambda: self._http.call("/v1/txn", body)[0])
        if result.outcome == "ok":
            self._held = (key, token)
        return result

    def close(self) -> None:
        """See ``ClientSession``."""
        self._http.report(self.name)
        self._http.close()


class HttpReaderSession(ClientSession):
    """Reads rows, lists and scans of reader daemons."""

    weights: ClassVar = {"read": 1, "read_lists": 1, "scan": 1, "read_with_lifetime": 1}

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name, "reader")
        self._http = HttpRequests(shared, "readers")

    def read(self) -> Result:
        """Read a register."""
        key = self.register()
        return self.record("read", key, None, lambda: read_row(self._http, key))

    def read_with_lifetime(self) -> Result:
        """Read a row that may have expired."""
        key = self.expiring(is_read=True)
        return self.record("read", key, None, lambda: read_row(self._http, key))

    def read_lists(self) -> Result:
        """Read lists of one state."""
        keys = self.list_keys()
        group = keys[0].rpartition("/")[0] + "/"
        return self.record("txn", group, None, lambda: read_lists(self._http, keys))

    def scan(self) -> Result:
        """Read all keys of a group."""
        group = self.group()
        return self.record("scan", group, None, lambda: scan_group(self._http, group, self.rng.choice(SCANS)))

    def close(self) -> None:
        """See ``ClientSession``."""
        self._http.report(self.name)
        self._http.close()


def read_row(http: HttpRequests, key: str) -> Result:
    """Read a register."""
    result, value = http.get(key)
    return Result(result.outcome, name_in(value), result.served_by)


def read_lists(http: HttpRequests, keys: list[str]) -> Result:
    """Read lists of one state."""
    result, values = http.get_many(keys)
    steps = [["r", key, elements_in(value)] for key, value in zip(keys, values, strict=bool(values))]
    return Result(result.outcome, steps, result.served_by)


def scan_group(http: HttpRequests, group: str, how: str) -> Result:
    """Read the rows of a group."""
    result, rows = http.scan(group, how)
    return Result(result.outcome, {key: name_in(value) for key, value in rows.items()}, result.served_by)
