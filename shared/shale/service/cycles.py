"""How often Python looks for garbage that refers to itself."""

import gc

_CONTAINERS = 20_000


def look_for_cycles_less_often() -> None:
    """Look for cycles after 20,000 new containers instead of 700, and not again at what start-up has loaded.

    Each look at what is old walks over every key and value of the memtable, which refer to nothing, and a request of a
    thousand rows alone makes more than 700 containers.
    """
    gc.freeze()
    gc.set_threshold(_CONTAINERS, 20, 20)
