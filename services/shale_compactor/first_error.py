"""The one error behind a group of errors that a task group raises."""

import anyio


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error that is a cause; a broken channel is what the other end's error looks like from here."""
    leaves = list(_leaves(group))
    causes = [error for error in leaves if not isinstance(error, anyio.BrokenResourceError)]
    return (causes or leaves)[0]


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for child in error.exceptions for leaf in _leaves(child)]
    return [error]
