"""Large values that are being sent: one copy of each, however many clients read it."""

import asyncio
from functools import partial
from typing import Any

from shale.concurrency.byte_budget import ByteShare, TaskShares

ValueName = tuple[bytes, int]
"""The key of a value and its sequence number."""


class _SentValue:
    """A value, its share of the budget, and how many tasks send it."""

    __slots__ = ("senders", "share", "value")

    def __init__(self, value: bytes, share: ByteShare) -> None:
        self.value = value
        self.share = share
        self.senders = 0


class SentValues:
    """The values that are being sent.

    Args:
        shares: the memory of values that are read and sent.
    """

    def __init__(self, shares: TaskShares) -> None:
        self._shares = shares
        self._values: dict[ValueName, _SentValue] = {}

    def try_hold(self, name: ValueName, value: bytes) -> bytes | None:
        """Return the copy of a value to send; it is kept until the present task has ended.

        ``None``: there is no memory.  The caller drops the value, takes memory, and reads it again: many tasks may
        wait, so none of them keeps a value.  If the value is being sent to another client, that copy is returned.
        """
        sent = self._shared(name, value)
        if sent is None:
            share = self._shares.detach()
            share.reduce_to(len(value))
            if share.size_bytes < len(value):  # of a compressed one, or of one in memory
                share.reduce_to(0)
                if not share.try_take(len(value)):
                    return None
            sent = self._values[name] = _SentValue(value, share)
        self._shares.release()
        sent.senders += 1
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(partial(self._leave, name, sent))
        return sent.value

    def _shared(self, name: ValueName, value: bytes) -> _SentValue | None:
        sent = self._values.get(name)
        return sent if sent is not None and sent.value == value else None

    def _leave(self, name: ValueName, sent: _SentValue, _task: "asyncio.Task[Any]") -> None:
        sent.senders -= 1
        if not sent.senders:
            sent.share.reduce_to(0)
            if self._values.get(name) is sent:
                del self._values[name]
