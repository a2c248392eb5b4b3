"""Names: those we write, and those we accept in listings."""

from uuid import UUID

import pytest

from shale.format import names
from shale.types import Ulid

SST = Ulid.parse("01M7YR99715HTH48M6NQFFPJPG")


def test_keys_are_those_of_the_format() -> None:
    assert SST is not None
    assert names.manifest_key("a/b", 7) == "a/b/manifest/00000000000000000007.manifest"
    assert names.compactions_key("db", 1) == "db/compactions/00000000000000000001.compactions"
    assert names.wal_key("db", 2**64 - 1) == "db/wal/18446744073709551615.sst"
    assert names.sst_key("db", SST) == "db/compacted/01M7YR99715HTH48M6NQFFPJPG.sst"
    assert names.boundary_key("db", "manifest") == "db/gc/manifest.boundary"
    assert names.manifest_key("", 1) == "manifest/00000000000000000001.manifest"


@pytest.mark.parametrize(
    ("key", "id_"),
    [
        ("db/manifest/00000000000000000007.manifest", 7),
        ("db/manifest/18446744073709551615.manifest", 2**64 - 1),
        ("db/manifest/00000000000000000000.manifest", None),
        ("db/manifest/18446744073709551616.manifest", None),
        ("db/manifest/7.manifest", None),
        ("db/manifest/000000000000000000007.manifest", None),
        ("db/manifest/00000000000000000007.x.manifest", None),
        ("db/manifest/0000000000000000007٣.manifest", None),
        ("db/manifest/+0000000000000000007.manifest", None),
        ("db/manifest/00000000000000000007.manifest#1", None),
        ("db/manifest/sub/00000000000000000007.manifest", None),
        ("other/manifest/00000000000000000007.manifest", None),
        ("db/manifest/.manifest", None),
    ],
)
def test_only_canonical_manifest_names_have_an_id(key: str, id_: int | None) -> None:
    assert names.parse_manifest_key("db", key) == id_


def test_names_of_every_kind_are_read_back() -> None:
    assert SST is not None
    assert names.parse_sst_key("db", names.sst_key("db", SST)) == SST
    assert names.parse_sst_key("db", "db/compacted/01m7yr99715hth48m6nqffpjpg.sst") is None
    assert names.parse_wal_key("", names.wal_key("", 9)) == 9
    assert names.parse_compactions_key("db", names.compactions_key("db", 9)) == 9
    assert names.parse_compactions_key("db", names.manifest_key("db", 9)) is None


def test_the_range_of_an_attempt_lies_beside_that_of_the_clone() -> None:
    attempt = UUID(int=0xAB)
    key = names.attempt_range_key("db", attempt)
    assert key == f"{names.visible_range_key('db')}_00000000-0000-0000-0000-0000000000ab"
    assert names.parse_attempt_range_key("db", key) == attempt
    for other in (names.visible_range_key("db"), key.upper(), f"{key}0", f"{key}#1", key.replace("-", ""), f"a{key}"):
        assert names.parse_attempt_range_key("db", other) is None
    assert names.parse_attempt_range_key("db", key.replace("ab", "AB")) is None
