"""Clients of the Redis protocol, with redis-py."""

import time
from collections.abc import Callable
from typing import Any, ClassVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.soak.clients.session import Address, ClientSession, Result, Shared, wall_ms
from tests.soak.history.operation import Outcome
from tests.soak.history.values import elements_in, joined, name_in, padded

TIMEOUT_S = 12.0
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
REFUSED = ("ERR draining", "READONLY", "ERR max number", "NOAUTH", "NOPERM", "WRONGPASS", "EXECABORT")


class RespSession(ClientSession):
    """Counters, registers, locks and transactions; every answer of a write is durable."""

    weights: ClassVar = {
        "count": 24,
        "overwrite": 18,
        "write_once": 18,
        "read": 14,
        "append_to_lists": 14,
        "append_to_one_list": 6,
        "write_with_lifetime": 8,
        "read_with_lifetime": 12,
        "take_or_release_lock": 8,
    }

    def __init__(self, shared: Shared, name: str, kind: str = "writers") -> None:
        super().__init__(shared, name, "resp" if kind == "writers" else "reader")
        self._kind = kind
        self._redis: redis.Redis | None = None
        self._address: Address | None = None
        self._turn = 0
        self._held: tuple[str, str] | None = None

    def _ask(self, call: Callable[["redis.Redis"], Any]) -> Result:
        """Make one request; the value of the result is what redis-py returns."""
        client = self._connect()
        assert self._address is not None
        instance = self._address.instance
        try:
            return Result("ok", call(client), instance)
        except redis.WatchError as error:
            # redis-py raises it for a connection that breaks after EXEC, too.
            is_known = "Watched variable changed" in str(error)
            if not is_known:
                self._disconnect()
            return Result("fail" if is_known else "unknown", None, instance)
        except redis.ResponseError as error:
            self._disconnect()
            return Result(outcome_of(str(error)), None, instance)
        except redis.ConnectionError as error:
            self._disconnect()
            is_refused = isinstance(error.__cause__, ConnectionRefusedError) or "refused" in str(error)
            return Result("fail" if is_refused else "unknown", None, instance)
        except redis.RedisError:
            self._disconnect()
            return Result("unknown", None, instance)

    def count(self) -> Result:
        """Add one to a counter."""
        key = f"counter/{self.generation()}"
        return self.record("add", key, None, lambda: self._ask(lambda client: client.incr(key)))

    def overwrite(self) -> Result:
        """Write a register."""
        key, name = self.register(), self.next_name()
        value = padded(name, 100)
        return self.record("write", key, name, lambda: self._ask(lambda client: client.set(key, value)))

    def write_once(self) -> Result:
        """Write keys that no other operation writes."""
        names = [f"{self.next_name()}.{number}" for number in range(2)]
        pairs = {f"once/{name}": padded(name, 700) for name in names}
        start = time.monotonic()
        result = self._ask(lambda client: client.mset(pairs))
        for name in names:
            self.note("write", f"once/{name}", name, result, start)
        return result

    def read(self) -> Result:
        """Read a register, whose newest row may not be durable yet."""
        key = self.register()
        return self.record("read", key, None, lambda: _named(self._ask(lambda client: client.get(key))), is_dirty=True)

    def append_to_lists(self) -> Result:
        """Append to lists in a transaction that fails if one of them has changed."""
        keys = self.list_keys()
        group = keys[0].rpartition("/")[0] + "/"
        element = self.next_name()
        changed = self.rng.sample(keys, self.rng.choice((1, 2)))
        steps: list[Any] = []

        def append(client: "redis.Redis") -> Any:
            with client.pipeline(transaction=True) as pipe:
                pipe.watch(*keys)
                values: Any = pipe.mget(keys)
                lists = {key: elements_in(value) for key, value in zip(keys, values, strict=True)}
                steps[:] = [["r", key, lists[key]] for key in keys] + [["append", key, element] for key in changed]
                pipe.multi()
                for key in changed:
                    pipe.set(key, joined([*lists[key], element]))
                return pipe.execute()

        start = time.monotonic()
        result = self._ask(append)
        if steps:
            self.note("txn", group, list(steps), result, start)
        return result

    def write_with_lifetime(self) -> Result:
        """Write a row that expires."""
        key, name = self.expiring(), self.next_name()
        value = padded(name, 100)
        meaning, when = self.lifetime()
        lifetime = {"px": int(when * 1000)} if meaning == "for" else {"pxat": wall_ms(when)}
        written = [name, meaning, when]
        return self.record(
            "write_until", key, written, lambda: self._ask(lambda client: client.set(key, value, **lifetime))
        )

    def read_with_lifetime(self) -> Result:
        """Read a row unless it has expired."""
        key = self.expiring(is_read=True)
        return self.record(
            "read_live", key, None, lambda: _named(self._ask(lambda client: client.get(key))), is_dirty=True
        )

    def append_to_one_list(self) -> Result:
        """Append to a list without reading it."""
        key = self.list_keys()[0]
        element = self.next_name()
        steps = [["append", key, element]]
        group = key.rpartition("/")[0] + "/"
        return self.record("txn", group, steps, lambda: self._ask(lambda client: client.append(key, joined([element]))))

    def read_lists(self) -> Result:
        """Read lists of one state."""
        keys = self.list_keys()
        group = keys[0].rpartition("/")[0] + "/"

        def read() -> Result:
            result = self._ask(lambda client: client.mget(keys))
            values = result.value or []
            steps = [["r", key, elements_in(value)] for key, value in zip(keys, values, strict=bool(values))]
            return Result(result.outcome, steps, result.served_by)

        return self.record("txn", group, None, read)

    def take_or_release_lock(self) -> Result:
        """Take a lock that is free, or release the one that this session has."""
        if self._held is not None:
            key, token = self._held
            self._held = None
            return self.record("cas", key, [token, None], lambda: _whether(self._ask(_release(key, token))))
        key, token = self.lock_key(), self.next_name()
        result = self.record(
            "cas", key, [None, token], lambda: _whether(self._ask(lambda client: client.set(key, token, nx=True)))
        )
        if result.outcome == "ok":
            self._held = (key, token)
        return Result("ok") if result.outcome == "fail" else result

    def _connect(self) -> "redis.Redis":
        if self._redis is None:
            addresses = self.shared.addresses(self._kind)
            self._turn += 1
            self._address = addresses[self._turn % len(addresses)]
            host, _, port = self._address.resp.rpartition(":")
            self._redis = redis.Redis(
                host=host,
                port=int(port),
                password=self.shared.token,
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
            )
        return self._redis

    def _disconnect(self) -> None:
        if self._redis is not None:
            self._redis.close()
        self._redis = None

    def close(self) -> None:
        """See ``ClientSession``."""
        self._disconnect()


class RespReaderSession(RespSession):
    """Reads lists and rows with a lifetime of reader daemons."""

    weights: ClassVar = {"read_lists": 1, "read_with_lifetime": 1}

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name, "readers")


def outcome_of(text: str) -> Outcome:
    """Return what is known about a write from an error."""
    if "unknown" in text:
        return "unknown"
    return "fail" if text.startswith((*REFUSED, "TRYAGAIN")) else "unknown"


def _release(key: str, token: str) -> "Callable[[redis.Redis], Any]":
    return lambda client: client.eval(RELEASE, 1, key, token)


def _named(result: Result) -> Result:
    return Result(result.outcome, name_in(result.value), result.served_by)


def _whether(result: Result) -> Result:
    """Return a condition that does not hold as an operation without effect."""
    return Result("fail", None, result.served_by) if result.outcome == "ok" and not result.value else result
