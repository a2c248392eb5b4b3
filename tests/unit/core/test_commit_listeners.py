"""Commits that other parts of the process are told of."""

import asyncio
from threading import Thread

from shale.core.commit_listeners import CommitListeners


def test_listeners_of_a_place_hear_of_the_commits_of_others_until_they_leave() -> None:
    async def scenario() -> None:
        listeners, heard, own, other = CommitListeners(), [0], object(), object()

        def count() -> None:
            heard[0] += 1

        with listeners.listening("a", own, count):
            listeners.notify("a", own)
            listeners.notify("b", other)
            assert heard == [0]
            listeners.notify("a", other)
            assert heard == [1]
            with listeners.listening("a", own, count):
                listeners.notify("a", other)
                assert heard == [3]
            listeners.notify("a", other)
            assert heard == [4]
        listeners.notify("a", other)
        assert heard == [4]

    asyncio.run(scenario())


def test_a_listener_is_called_in_its_own_loop() -> None:
    async def scenario() -> None:
        listeners, heard = CommitListeners(), asyncio.Event()

        async def commit() -> None:
            listeners.notify("a", object())

        with listeners.listening("a", object(), heard.set):
            thread = Thread(target=lambda: asyncio.run(commit()))
            thread.start()
            await asyncio.wait_for(heard.wait(), 20)
            thread.join()

    asyncio.run(scenario())


def test_a_listener_whose_loop_is_closed_is_passed_over() -> None:
    listeners = CommitListeners()

    async def listen() -> object:
        context = listeners.listening("a", object(), lambda: None)
        context.__enter__()
        return context  # its owner ended without leaving it

    context = asyncio.run(listen())

    async def commit() -> None:
        listeners.notify("a", object())

    asyncio.run(commit())
    assert context is not None
