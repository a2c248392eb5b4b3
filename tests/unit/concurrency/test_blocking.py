"""Blocking methods made from asynchronous ones."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from shale.concurrency.blocking import BlockingHandle, Run, blocking, blocking_as, blocking_iterator, forwarded, in_loop

T = TypeVar("T")


class Ticket:
    """A handle that an asynchronous call returns."""

    def __init__(self, number: int) -> None:
        self.number = number


class Source:
    """An asynchronous class."""

    def __init__(self) -> None:
        self.closed = False

    async def double(self, value: int, *, plus: int = 0) -> int:
        """Double a value."""
        return 2 * value + plus

    def ticket(self, number: int) -> Coroutine[Any, Any, Ticket]:
        """Return a ticket."""

        async def made() -> Ticket:
            return Ticket(number)

        return made()

    async def count(self, end: int) -> AsyncIterator[int]:
        """Yield the numbers below ``end``."""
        try:
            for number in range(end):
                yield number
        finally:
            self.closed = True

    def is_in_loop(self) -> bool:
        """Return whether an event loop runs in this thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True


class BlockingTicket(BlockingHandle[Ticket]):
    """The blocking form of a ticket."""

    @property
    def number(self) -> int:
        """The number of the ticket."""
        return self._inner.number


class BlockingSource(BlockingHandle[Source]):
    """The blocking form of a source."""

    double = blocking(Source.double)
    ticket = blocking_as(BlockingTicket, Source.ticket)
    count = blocking_iterator(Source.count, fetch=2)
    is_in_loop = in_loop(Source.is_in_loop)
    is_in_loop_here = forwarded(Source.is_in_loop)

    @property
    def is_closed(self) -> bool:
        """Whether a generator of the source was closed."""
        return self._inner.closed


@pytest.fixture
def source() -> Iterator[BlockingSource]:
    with asyncio.Runner() as runner:
        run: Run = runner.run
        yield BlockingSource(Source(), run)


def test_a_call_blocks_and_returns_the_result(source: BlockingSource) -> None:
    assert source.double(3, plus=1) == 7


def test_a_handle_is_wrapped(source: BlockingSource) -> None:
    ticket = source.ticket(5)
    assert (type(ticket), ticket.number) == (BlockingTicket, 5)


def test_a_generator_yields_all_items_and_closes_the_source(source: BlockingSource) -> None:
    assert list(source.count(5)) == [0, 1, 2, 3, 4]
    assert source.is_closed


def test_a_generator_that_is_left_early_closes_the_source(source: BlockingSource) -> None:
    numbers = source.count(100)
    assert next(numbers) == 0
    numbers.close()
    assert source.is_closed


def test_calls_that_do_not_wait_run_in_the_loop_or_in_the_caller(source: BlockingSource) -> None:
    assert source.is_in_loop()
    assert not source.is_in_loop_here()


def test_signature_and_docstring_are_those_of_the_original() -> None:
    assert str(inspect.signature(BlockingSource.double)) == "(self, value: int, *, plus: int = 0) -> int"
    assert inspect.signature(BlockingSource.ticket).return_annotation is BlockingTicket
    assert BlockingSource.count.__doc__ == Source.count.__doc__
