"""Trees that a kernel writes against those of the generated code, byte for byte."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.format.manifest import ManifestEncoder
from shale.kernels.dispatch import use_kernels
from shale.types import Manifest, RunId, Segment, SortedRun, Sst, SstInfo, SstView, Tree, Ulid
from tests.unit.format.values import manifests

NEVER = 1 << 62


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")


def whole(manifest: Manifest) -> Manifest:
    """Return the manifest with whole SSTs: a view with a range is written by the generated code."""

    def views(cut: tuple[SstView, ...]) -> tuple[SstView, ...]:
        return tuple(replace(view, visible_range=None) for view in cut)

    def tree(cut: Tree) -> Tree:
        runs = tuple(replace(run, ssts=views(run.ssts)) for run in cut.compacted)
        return replace(cut, l0=views(cut.l0), compacted=runs)

    segments = tuple(Segment(prefix=segment.prefix, tree=tree(segment.tree)) for segment in manifest.segments)
    return replace(manifest, tree=tree(manifest.tree), segments=segments)


@given(manifests())
def test_equal_to_the_generated_code(manifest: Manifest) -> None:
    manifest = whole(manifest)
    assert ManifestEncoder(0).encode(manifest) == ManifestEncoder(NEVER).encode(manifest)


@given(manifests())
def test_views_with_a_range(manifest: Manifest) -> None:
    assert ManifestEncoder(0).encode(manifest) == ManifestEncoder(NEVER).encode(manifest)


@pytest.mark.slow
@given(st.lists(manifests().map(whole), min_size=2, max_size=4))
def test_one_encoder_for_many_versions(versions: list[Manifest]) -> None:
    encoder = ManifestEncoder(0)
    mixed = [*versions, *(replace(each, tree=versions[0].tree) for each in versions)]
    for manifest in mixed:
        assert encoder.encode(manifest) == ManifestEncoder(NEVER).encode(manifest)


def test_more_kinds_of_tables_than_the_kernel_remembers() -> None:
    """Every subset of the fields of a footer has a vtable of its own."""
    ssts = [
        Sst(id=Ulid(number + 1), info=SstInfo(**dict(zip(_NUMBERS, _bits(number), strict=True))))
        for number in range(64)
    ]
    run = SortedRun(id=RunId(1), ssts=tuple(map(SstView.identity, ssts)))
    manifest = Manifest(tree=Tree(compacted=(run,)))
    assert ManifestEncoder(0).encode(manifest) == ManifestEncoder(NEVER).encode(manifest)


_NUMBERS = ("index_offset", "index_len", "filter_offset", "filter_len", "stats_offset", "stats_len")


def _bits(number: int) -> list[int]:
    return [number >> bit & 1 for bit in range(len(_NUMBERS))]
