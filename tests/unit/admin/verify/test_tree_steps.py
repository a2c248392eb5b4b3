"""What may vanish from one version of the manifest to the next."""

from dataclasses import replace

import pytest

from shale.admin.verify.tree_steps import VersionSummary, tree_step_problems
from shale.admin.verify.versions import without_trees
from shale.format.manifest import decode_manifest
from shale.sst.verify.codes import Code
from shale.types import Manifest, Segment, Tree
from tests.golden_files import FIXTURES


def with_segments() -> Manifest:
    newest = max((FIXTURES / "segments/db/manifest").glob("*.manifest"))
    return decode_manifest(newest.read_bytes())


def codes(older: Manifest, newer: Manifest, *, versions_apart: int = 1) -> list[Code]:
    before = VersionSummary.of(7, older, without_trees(older))
    after = VersionSummary.of(7 + versions_apart, newer, without_trees(newer))
    return [problem.code for problem in tree_step_problems(before, after)]


@pytest.mark.parametrize(("versions_apart", "found"), [(1, [Code.L0_VANISHED]), (2, [])])
def test_a_segment_with_rows_does_not_vanish_in_one_step(versions_apart: int, found: list[Code]) -> None:
    manifest = with_segments()
    newer = replace(manifest, segments=manifest.segments[1:])
    assert codes(manifest, newer, versions_apart=versions_apart) == found


def test_the_writer_removes_a_segment_that_was_drained() -> None:
    manifest = with_segments()
    drained = replace(
        manifest, segments=(Segment(prefix=manifest.segments[0].prefix, tree=Tree()), *manifest.segments[1:])
    )
    newer = replace(manifest, segments=manifest.segments[1:])
    assert codes(drained, newer) == []
