"""What is fuzzed: a target takes bytes, and answers with a value or one of the errors that it promises."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.fuzz.mutation import mutate_bytes

Mutation = Callable[[random.Random, bytes], bytes]


class Difference(Exception):
    """Two readers of one input disagree, or an answer breaks a promise."""


@dataclass(frozen=True)
class Target:
    """One parser, or a group of parsers that take the same bytes.

    Args:
        name: of its regressions and in reports.
        run: reads an input; returns, or raises one of ``expected``.
        seeds: makes valid inputs.
        expected: the errors that ``run`` may raise.
        mutate: changes an input by its structure; plain changes of bytes are mixed in.
        modules: the modules of Shale whose lines are counted, and guide the search.
        structured: share of inputs that ``mutate`` changes; the others are changed byte by byte.
        weight: share of the time relative to other targets.
    """

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    expected: tuple[type[BaseException], ...]
    modules: tuple[str, ...]
    mutate: Mutation = mutate_bytes
    structured: float = 0.7
    weight: float = 1.0

    def change(self, rng: random.Random, data: bytes) -> bytes:
        """Return a changed input."""
        for _ in range(1 << rng.randrange(3)):
            data = (self.mutate if rng.random() < self.structured else mutate_bytes)(rng, data)
        return data
