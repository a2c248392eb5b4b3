"""The memory of a container, from files as the kernel has them."""

from pathlib import Path

import pytest

from shale.service.memory.container import available_memory


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


V2 = {"proc/self/cgroup": "0::/kubepods/pod1/c1\n"}
V1 = {"proc/self/cgroup": "5:devices:/\n4:cpu,memory:/docker/c1\n0::/\n"}


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({**V2, "sys/fs/cgroup/kubepods/pod1/c1/memory.max": "268435456\n"}, 268435456),
        (
            {**V2, "sys/fs/cgroup/kubepods/pod1/c1/memory.max": "max\n", "sys/fs/cgroup/kubepods/memory.max": "1000\n"},
            1000,
        ),
        ({**V2, "sys/fs/cgroup/kubepods/pod1/c1/memory.max": "9000\n", "sys/fs/cgroup/memory.max": "800\n"}, 800),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4096\n"}, 4096),
        ({**V1, "sys/fs/cgroup/memory/docker/c1/memory.limit_in_bytes": "536870912\n"}, 536870912),
        # In a container the path is that of the host, and its own group is the root of the mount.
        ({**V1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "777\n"}, 777),
    ],
)
def test_the_lowest_limit_of_a_group_counts(tmp_path: Path, files: dict[str, str], limit: int) -> None:
    """That of the process, or of a group above."""
    found = available_memory(_write(tmp_path, files))
    assert (found.size_bytes, found.source) == (limit, "the container")


@pytest.mark.parametrize(
    "files",
    [
        {},
        {**V2, "sys/fs/cgroup/kubepods/pod1/c1/memory.max": "max\n"},
        {**V1, "sys/fs/cgroup/memory/docker/c1/memory.limit_in_bytes": "9223372036854771712\n"},
    ],
)
def test_without_a_limit_it_is_the_memory_of_the_machine(tmp_path: Path, files: dict[str, str]) -> None:
    """Which has more than a mebibyte, and less than an exbibyte."""
    found = available_memory(_write(tmp_path, files))
    assert found.source == "the machine"
    assert 1 << 20 < found.size_bytes < 1 << 60
