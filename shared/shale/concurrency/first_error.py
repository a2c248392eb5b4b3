"""The error that caused a group of errors."""

import anyio


def first_error(error: BaseException) -> BaseException:
    """Return the first error of nested groups that is a cause; an error that is no group is its own cause.

    A broken channel only reflects the error at its other end, so it counts only if there is nothing else.
    """
    leaves = _leaves(error)
    causes = [error for error in leaves if not isinstance(error, anyio.BrokenResourceError)]
    return (causes or leaves)[0]


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for child in error.exceptions for leaf in _leaves(child)]
    return [error]
