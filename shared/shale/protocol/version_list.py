"""A listing of a namespace as three columns: 24 bytes a version, where as many objects would take ten times that."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self, overload

from shale.protocol.versioned import VersionMeta


class VersionList(Sequence[VersionMeta]):
    """Versions ascending by id, made when they are looked at."""

    __slots__ = ("_ids", "_modified_ms", "_sizes")

    def __init__(self, versions: Iterable[VersionMeta] = ()) -> None:
        self._ids = array("Q")
        self._modified_ms = array("q")
        self._sizes = array("Q")
        for version in versions:
            self.append(version)

    def append(self, version: VersionMeta) -> None:
        """Add one at the end."""
        self._ids.append(version.id)
        self._modified_ms.append(version.last_modified_ms)
        self._sizes.append(version.size)

    def where(self, keep: Callable[[VersionMeta], bool]) -> Self:
        """Those that ``keep`` wants, in the same order."""
        return type(self)(version for version in self if keep(version))

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[VersionMeta]:
        return map(VersionMeta, self._ids, self._modified_ms, self._sizes)

    @overload
    def __getitem__(self, index: int) -> VersionMeta: ...
    @overload
    def __getitem__(self, index: slice) -> list[VersionMeta]: ...
    def __getitem__(self, index: int | slice) -> VersionMeta | list[VersionMeta]:
        if isinstance(index, slice):
            return list(map(VersionMeta, self._ids[index], self._modified_ms[index], self._sizes[index]))
        return VersionMeta(self._ids[index], self._modified_ms[index], self._sizes[index])
