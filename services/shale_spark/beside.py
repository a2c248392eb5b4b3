"""Asynchronous things that are held open beside blocking code, in a thread with an event loop."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

T = TypeVar("T")


@contextmanager
def held_beside(opened: AbstractAsyncContextManager[T]) -> Iterator[tuple[BlockingPortal, T]]:
    """Enter and leave in a thread of its own; gives the way into that thread's loop, and what was entered.

    What ends the block is no concern of what is held: a KeyboardInterrupt that went into it would end the event loop
    before anything is let go.
    """
    with start_blocking_portal("asyncio") as portal:
        entered = portal.wrap_async_context_manager(opened)
        held = entered.__enter__()
        try:
            yield portal, held
        finally:
            entered.__exit__(None, None, None)
