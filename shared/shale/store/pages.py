"""One page of a listing at a time, for stores that stand on another one."""

from collections.abc import AsyncIterator, Sequence

from shale.store.port import ObjectMeta


async def next_page(pages: AsyncIterator[Sequence[ObjectMeta]]) -> Sequence[ObjectMeta]:
    """The next page; an empty one is the end.

    The built-in ``anext`` with a default turns errors of the iterator into ``SystemError`` (CPython 3.11).
    """
    async for page in pages:
        return page
    return ()
