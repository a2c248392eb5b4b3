"""The JSON output of commands that read a database and change its rows."""

from tests.integration.cli.goldens import Golden


def test_rows(golden: Golden, url: str) -> None:
    golden.check("kv-get", "kv", "get", "a", "-u", url)
    golden.check("kv-get.expiring", "kv", "get", "b", "-u", url)
    golden.check("kv-scan", "kv", "scan", "-u", url)
    golden.check("kv-scan.count", "kv", "scan", "--count", "-u", url)
    golden.check("kv-put", "kv", "put", "c", "3", "-u", url)
    golden.check("kv-delete", "kv", "delete", "c", "-u", url)


def test_versions(golden: Golden, url: str) -> None:
    golden.check("manifest-list", "manifest", "list", "-u", url, volatile=("bytes",))
    golden.check("manifest-show", "manifest", "show", "-u", url)
    golden.check("doctor", "doctor", "-u", url, volatile=("seen",))
    golden.check("help-exit-codes", "help", "exit-codes")
