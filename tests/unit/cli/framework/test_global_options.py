"""Global options are accepted at any position, and an error in one is reported in one line."""

import pytest

from shale.errors import InvalidRequestError
from shale_cli.__main__ import main
from shale_cli.framework.global_options import OPTIONS, global_options, split
from shale_cli.framework.output.writer import Color, Format, KeyEncoding


@pytest.mark.parametrize(
    ("given", "values", "rest"),
    [
        (["kv", "get", "k", "-u", "file:///a/b"], {"--url": ["file:///a/b"]}, ["kv", "get", "k"]),
        (["-u", "x", "kv", "get", "k", "--output=json"], {"--url": ["x"], "--output": ["json"]}, ["kv", "get", "k"]),
        (["kv", "get", "-v", "k"], {"--verbose": []}, ["kv", "get", "k"]),
        (["kv", "put", "k", "--", "-u", "x"], {}, ["kv", "put", "k", "--", "-u", "x"]),
        (["kv", "scan", "--prefix", "a", "--start=b"], {}, ["kv", "scan", "--prefix", "a", "--start=b"]),
        (["-ojson", "kv", "get"], {"--output": ["json"]}, ["kv", "get"]),
        (["kv", "get", "-ojson"], {}, ["kv", "get", "-ojson"]),
        (["-e", "f", "scan"], {"--env-file": ["f"]}, ["scan"]),
        (["list-manifests", "-e", "7"], {}, ["list-manifests", "-e", "7"]),
        (["--version"], {"--version": []}, []),
        (["kv", "--version"], {}, ["kv", "--version"]),
        (["--quiet=yes", "kv"], {}, ["--quiet=yes", "kv"]),
        (["--config", "a", "kv", "--config", "b"], {"--config": ["a", "b"]}, ["kv"]),
        (["--url=", "kv"], {"--url": [""]}, ["kv"]),
        ([], {}, []),
    ],
)
def test_they_are_taken_out_of_a_command_line(given: list[str], values: dict[str, list[str]], rest: list[str]) -> None:
    found = split(given)
    assert (found.values, found.rest, found.waiting) == (values, rest, None)


def test_the_noun_is_the_first_word_that_is_no_option() -> None:
    assert split(["-u", "kv", "--nonsense", "db", "info"]).noun == "db"
    assert split(["-u", "kv"]).noun is None


def test_every_global_option_is_parsed() -> None:
    given = ["-u", "a", "-u", "b", "-p", "c", "--config", "d", "--config", "e", "-q", "-v", "--no-headers"]
    given += ["-o", "csv", "--key-format", "hex", "--color", "never", "--columns", "a, b,", "--timeout", "1s"]
    options = global_options(split([*given, "--store", "f", "--wal-store", "g"]))
    assert (options.url, options.path, options.store, options.wal_store) == ("b", "c", "f", "g")
    assert (options.config, options.timeout, options.verbose) == (("d", "e"), "1s", True)
    output = options.output
    assert (output.format, output.key_format, output.color) == (Format.CSV, KeyEncoding.HEX, Color.NEVER)
    assert (output.columns, output.headers, output.quiet) == (("a", "b"), False, True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["kv", "get", "a", "-u"], "--url needs a value: --url URL"),
        (["-o", "xml", "db", "info"], "--output: 'xml' is none of table, json, jsonl, yaml, csv"),
        (["db", "info", "--key-format", "HEX"], "--key-format: 'HEX' is none of utf8, hex, base64, repr"),
        (["db", "info", "--color=on"], "--color: 'on' is none of auto, always, never"),
    ],
)
def test_what_is_wrong_is_one_line(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        global_options(split(given))
    assert main(given) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"shale: {message}\n")


def test_help_is_given_whatever_else_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-o", "xml", "kv", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: shale kv ")


def test_no_command_has_an_option_of_the_same_name() -> None:
    """It could never be reached."""
    from shale_cli.framework.help.command_tree import command_tree

    ours = {name for option in OPTIONS for name in (option.name, option.short)} - {"-e"}
    for told in command_tree():
        for names, _ in told.parameters:
            own = {name.strip().split()[0] for name in names.split(",") if name.strip().startswith("-")}
            assert not own & ours, told.name
