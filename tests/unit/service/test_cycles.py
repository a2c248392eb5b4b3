"""A daemon's rows are not walked over at every request."""

import subprocess
import sys

_REQUESTS = """
import gc
from shale.service.cycles import look_for_cycles_less_often
look_for_cycles_less_often()
kept = list(map(str, range(100_000)))
before = [each["collections"] for each in gc.get_stats()]
for _ in range(1_000):
    rows = [(number,) for number in range(1_000)]
    del rows
after = [each["collections"] for each in gc.get_stats()]
ring = []
ring.append(ring)
del ring
print(sum(after) - sum(before), gc.collect())
"""


def test_requests_of_many_rows_set_off_no_search_and_cycles_are_still_found() -> None:
    told = subprocess.run([sys.executable, "-c", _REQUESTS], capture_output=True, text=True, check=True).stdout
    searches, found = map(int, told.split())
    assert searches == 0
    assert found >= 1
