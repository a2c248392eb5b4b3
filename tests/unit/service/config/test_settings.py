"""Settings: their sources, precedence and errors."""

import os
import traceback
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import ValidationError

from shale.api.settings import HttpSection as ApiHttpSection
from shale.errors import InvalidRequestError
from shale.resp.settings import RespSection
from shale.service.config.admin_section import AdminSection
from shale.service.config.section import Section
from shale.service.config.sections import Bytes, FilterSection, Port, Seconds
from shale.service.config.settings import DaemonSettings, load_settings
from shale.service.config.settings_error import SettingsError
from shale.types import KeyRange
from shale_compactor.settings import CompactorSettings
from shale_gc.settings import GcSettings
from shale_reader.settings import ReaderSettings
from shale_writer.settings import WriterSettings


class HttpSection(Section):
    """A section that only this daemon has."""

    port: Port = 8080
    timeout: Seconds = 10.0


class ThingSettings(DaemonSettings):
    """A daemon for tests, with a key that SlateDB's own file has."""

    ROLE: ClassVar[str] = "writer"

    http: HttpSection = HttpSection()
    l0_sst_size_bytes: Bytes = 64


URL = ["--url", "memory:///orders"]


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SHALE_CONFIG", "SHALE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SHALE_SECRETS_DIR", str(tmp_path / "secrets"))


def _file(tmp_path: Path, text: str, name: str = "config.toml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_the_stronger_source_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "writer__http__port").write_text("3\n")
    file = _file(tmp_path, "[http]\nport = 2\n[writer.http]\ntimeout = '2s'\n[log]\nlevel = 'debug'\n")
    given = [*URL, "--config", file]

    def port() -> int:
        return load_settings(ThingSettings, given).settings.http.port

    assert port() == 3
    (secrets / "writer__http__port").unlink()
    assert port() == 2
    monkeypatch.setenv("SHALE_HTTP__PORT", "4")
    assert port() == 4
    monkeypatch.setenv("SHALE_WRITER__HTTP__PORT", "5")
    assert port() == 5
    given += ["--port", "6"]
    settings = load_settings(ThingSettings, given).settings
    assert settings.http.port == 6
    assert settings.http.timeout == 2.0
    assert settings.log.level == "debug"


def test_several_files_merge_from_left_to_right(tmp_path: Path) -> None:
    first = _file(tmp_path, "[http]\nport = 1\ntimeout = 1\n")
    second = _file(tmp_path, "http:\n  port: 2\n", "second.yaml")
    settings = load_settings(ThingSettings, [*URL, "--config", first, "--config", second]).settings
    assert (settings.http.port, settings.http.timeout) == (2, 1.0)


def test_a_variable_names_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.yaml"
    first.write_text("[http]\nport = 1\ntimeout = 5\n")
    second.write_text("http: {port: 2}\n")
    monkeypatch.setenv("SHALE_CONFIG", f"{first}:{second}")
    loaded = load_settings(ThingSettings, URL)
    assert (loaded.settings.http.port, loaded.settings.http.timeout) == (2, 5.0)
    assert loaded.unknown_env == ()


def test_what_several_daemons_share_is_passed_over_by_those_that_lack_it(tmp_path: Path) -> None:
    file = tmp_path / "shared.toml"
    file.write_text(
        'merge_operator = "int_add"\n[resp]\nenabled = true\n'
        '[[filters]]\nbits_per_key = 12\n[disk_cache]\ndirectory = "/c"\n'
    )
    writer = load_settings(WriterSettings, ["--url", "memory:///db", "--config", str(file)]).settings
    assert (writer.merge_operator, writer.resp.enabled, writer.filters[0].bits_per_key) == ("int_add", True, 12)
    assert load_settings(GcSettings, ["--url", "memory:///db", "--config", str(file)]).settings.dry_run is False


def test_the_keys_of_one_part_of_a_split_database(tmp_path: Path) -> None:
    text = _file(tmp_path, '[enforce_visible_range]\nend = "m"\n')
    options = load_settings(WriterSettings, [*URL, "--config", text]).settings.options()
    assert options.enforce_visible_range == KeyRange.half_open(None, b"m")
    flags = ["--set", "enforce_visible_range.start=00ff", "--set", "enforce_visible_range.format=hex"]
    assert load_settings(ReaderSettings, [*URL, *flags]).settings.options().enforce_visible_range == KeyRange.half_open(
        b"\x00\xff", None
    )
    for wrong in ("enforce_visible_range.start=0", "enforce_visible_range.end="):
        with pytest.raises(SettingsError, match="enforce_visible_range"):
            load_settings(ReaderSettings, [*URL, "--set", wrong, "--set", "enforce_visible_range.format=hex"])


def test_slatedb_s_own_file_and_environment_are_read_as_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = _file(
        tmp_path,
        "flush_interval = '100ms'\nl0_sst_size_bytes = 1024\n[compactor_options]\npoll_interval = '5s'\n"
        "[garbage_collector_options.wal_options]\nmin_age = '60s'\n",
        "SlateDb.toml",
    )
    assert load_settings(ThingSettings, [*URL, "--config", file]).settings.l0_sst_size_bytes == 1024
    monkeypatch.setenv("SLATEDB_L0_SST_SIZE_BYTES", "4096")
    assert load_settings(ThingSettings, [*URL, "--config", file]).settings.l0_sst_size_bytes == 4096


def test_sections_of_other_daemons_are_theirs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = _file(tmp_path, "[gc]\nnonsense = 1\n[compactor.http]\nport = 'x'\n")
    monkeypatch.setenv("SHALE_GC__INTERVAL", "1s")
    assert load_settings(ThingSettings, [*URL, "--config", file]).unknown_env == ()


def test_every_mistake_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = _file(tmp_path, "[writer.http]\nprot = 1\n[nonsense]\nx = 1\n[log]\nlevel = 'loud'\n")
    monkeypatch.setenv("SHALE_WRITER__HTTP__PORT", "99999")
    monkeypatch.setenv("SHALE_SHUTDOWN__DEADLINE", "soon")
    with pytest.raises(SettingsError) as caught:
        load_settings(ThingSettings, [*URL, "--config", file, "--set", "http.timeout=-1"])
    text = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 6, text
    assert f"http.prot: no such setting; did you mean port? (file {file}, section writer)" in text
    assert f"nonsense: no such setting (file {file})" in text
    assert f"(file {file})" in text.partition("log.level")[2]
    assert "(environment SHALE_WRITER__HTTP__PORT)" in text
    assert "'soon' is not a duration" in text
    assert "(environment SHALE_SHUTDOWN__DEADLINE)" in text
    assert "(option --set http.timeout)" in text


def test_unknown_variables_are_told_and_do_not_stop_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHALE_WRITER__HTTP__PROT", "1")
    monkeypatch.setenv("SHALE_WHATEVER", "1")
    monkeypatch.setenv("SHALE_SIM_SEEDS", "1")
    monkeypatch.setenv("SHALE_ADMIN_TOKEN", "t")
    unknown = load_settings(ThingSettings, URL).unknown_env
    assert len(unknown) == 2
    assert "SHALE_WHATEVER" in unknown[0]
    assert "SHALE_WRITER__HTTP__PROT; did you mean http__port?" in unknown[1]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param([], "no database given", id="nothing"),
        pytest.param(["--url", "orders"], "'orders' is not a URL", id="not a URL"),
        pytest.param(["--url", "memory:///a", "--store", "memory:///"], "not both", id="both"),
        pytest.param([*URL, "--set", "store.access_key_id=x"], "other users can read a secret", id="a secret"),
        pytest.param([*URL, "--config", "/nowhere.toml"], "/nowhere.toml: cannot read", id="no such file"),
    ],
)
def test_impossible_settings(argv: list[str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings(ThingSettings, argv)


def test_half_a_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHALE_STORE__ACCESS_KEY_ID", "x")
    with pytest.raises(SettingsError, match="give both or neither"):
        load_settings(ThingSettings, URL)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('store:\n  session_token: "planted', "at line 2, column 26: found unexpected end of stream"),
        ("store:\n  session_token: *planted", "at line 2, column 18: found undefined alias …"),
        ("store:\n  session_token: planted: b", "at line 2, column 25: mapping values are not allowed here"),
        ("store: !planted x", "at line 1, column 8: could not determine a constructor for the tag …"),
        ("store: [planted", "but got '<stream end>'"),
        ("store: !!int planted", "base 10: …"),
    ],
)
def test_an_error_in_yaml_quotes_nothing_of_the_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(ThingSettings, [*URL, "--config", _file(tmp_path, text, "c.yaml")])
    assert "planted" not in "".join(traceback.format_exception(raised.value)).replace("test_settings", "")
    assert message in str(raised.value)


def test_a_broken_file_is_named_with_the_line(tmp_path: Path) -> None:
    file = _file(tmp_path, "[http]\nport = = 2\n")
    with pytest.raises(SettingsError, match=r"config\.toml: .*line 2"):
        load_settings(ThingSettings, [*URL, "--config", file])


@pytest.mark.parametrize("text", ["http: [", "- 1\n- 2\n"], ids=["broken", "not a table"])
def test_a_broken_yaml_file_is_named(tmp_path: Path, text: str) -> None:
    file = _file(tmp_path, text, "config.yaml")
    with pytest.raises(SettingsError, match=r"config\.yaml: "):
        load_settings(ThingSettings, [*URL, "--config", file])


def test_secrets_never_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHALE_STORE__ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("SHALE_STORE__SECRET_ACCESS_KEY", "hunter2")
    settings = load_settings(ThingSettings, URL).settings
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in settings.model_dump_json()
    assert settings.store.secret_access_key is not None
    assert settings.store.secret_access_key.get_secret_value() == "hunter2"


def test_the_hash_is_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    one, same = load_settings(ThingSettings, URL), load_settings(ThingSettings, URL)
    assert one.sha256_8 == same.sha256_8
    assert load_settings(ThingSettings, [*URL, "--port", "1"]).sha256_8 != one.sha256_8


def test_a_secret_that_is_not_text_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHALE_SECRETS_DIR", str(tmp_path))
    file = tmp_path / "store__secret_access_key"
    file.write_bytes(b"hunter2\xff")
    with pytest.raises(SettingsError) as caught:
        load_settings(ThingSettings, URL)
    (problem,) = caught.value.problems
    assert str(file) in problem
    assert "hunter2" not in problem


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("cpu_threads", DIGITS),
        ("store.max_retries", DIGITS),
        ("store.max_retries", "9" * 4000),
        ("store.request_timeout", DIGITS),
        ("store.request_timeout", f"{DIGITS}s"),
        ("l0_sst_size_bytes", DIGITS),
        ("l0_sst_size_bytes", f"{DIGITS}KiB"),
        ("l0_sst_size_bytes", f"{'9' * 400}.5KiB"),
        ("l0_sst_size_bytes", f"{2**64 - 1}KiB"),
        ("http.port", f"[{DIGITS}]"),
    ],
)
def test_a_number_of_thousands_of_digits_is_refused_by_name(setting: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{setting}: ") as raised:
        load_settings(ThingSettings, [*URL, "--set", f"{setting}={value}"])
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.toml", f"[store]\nmax_retries = {DIGITS}\n", "c.toml: line 2, max_retries = 9+…: a number too long"),
        ("c.toml", f"[store]\nmax_retries = 0x{DIGITS}\n", "store.max_retries: the number is too large"),
        ("c.toml", f"[store]\nrequest_timeout = {'9' * 4000}\n", "store.request_timeout: .* not finite"),
        ("c.toml", f"l0_sst_size_bytes = 0x{DIGITS}\n", "l0_sst_size_bytes: .* too large"),
        ("c.yaml", f"store:\n  max_retries: {DIGITS}\n", "c.yaml: line 2, max_retries: 9+…: a number too long"),
    ],
)
def test_a_file_with_such_a_number_is_refused_with_the_place(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message) as raised:
        load_settings(ThingSettings, [*URL, "--config", _file(tmp_path, text, name)])
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("SHALE_TLS__CA_FILE", "tls.ca_file"),
        ("SHALE_URL", "database.url"),
        ("SHALE_TOKENS__WRITE", "tokens.write"),
        ("SHALE_STORE__ENDPOINT", "store.endpoint"),
    ],
)
def test_a_variable_that_is_not_utf_8_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, setting: str
) -> None:
    monkeypatch.setenv(variable, os.fsdecode(b"https://a/\xa7"))
    with pytest.raises(InvalidRequestError) as raised:
        load_settings(ThingSettings, [] if variable == "SHALE_URL" else URL)
    assert str(raised.value) == f"{setting}: the text is not UTF-8 (environment {variable})"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (r'tls: {ca_file: "\ud800"}', r"tls\.ca_file"),
        (r'filters: [{prefix: "\ud800", prefix_bytes: 1}]', "filters"),
        (r'spark: {conf: {"spark.\ud800": x}}', r"spark\.conf\.spark\.\\ud800"),
    ],
)
def test_half_of_a_surrogate_pair_in_a_file_is_refused_by_name(tmp_path: Path, text: str, name: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"^{name}: the text is not UTF-8 \(file .*c\.yaml\)$"):
        load_settings(CompactorSettings, [*URL, "--config", _file(tmp_path, text, "c.yaml")])


def test_half_of_a_surrogate_pair_in_a_list_of_the_command_line_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequestError, match=r"^store\.a\.b: the text is not UTF-8 \(option --set"):
        load_settings(ThingSettings, [*URL, "--set", 'store.a.b=["x", "\udca7"]'])


def test_keys_are_read_from_their_file_and_shown_nowhere(tmp_path: Path) -> None:
    secret = bytes(range(32))
    keys = tmp_path / "keys"
    given = [*URL, "--set", f"encryption.key_file={keys}"]
    assert load_settings(ThingSettings, URL).settings.block_transformer() is None
    with pytest.raises(InvalidRequestError, match=r"^encryption\.key_file: .*keys cannot be read: FileNotFoundError"):
        load_settings(ThingSettings, given).settings.block_transformer()
    keys.write_text(f"k1 {secret.hex()}\n")
    settings = load_settings(ThingSettings, given).settings
    transformer = settings.block_transformer()
    assert transformer is not None
    assert transformer.decode(transformer.encode(b"x")) == b"x"
    assert secret.hex() not in settings.model_dump_json() + repr(settings) + repr(transformer)


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ({}, "_bf"),
        ({"prefix": "p4", "prefix_bytes": 4}, "_bf:p=p4"),
        ({"prefix": "tenant", "prefix_delimiter": "/", "whole_key": False}, "_bf:p=tenant:wh=0"),
    ],
)
def test_filters_of_settings(section: dict[str, object], name: str) -> None:
    assert FilterSection(**section).policy().name == name  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "section",
    [
        {"prefix": "p"},
        {"prefix_bytes": 4},
        {"prefix": "p", "prefix_bytes": 4, "prefix_delimiter": "/"},
        {"whole_key": False},
        {"bits_per_key": 0},
    ],
)
def test_filters_that_make_no_sense(section: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        FilterSection(**section)  # type: ignore[arg-type]


@pytest.mark.parametrize("token", ["", "two words", "line\nend", "Schlüssel"])
def test_an_empty_or_unprintable_token_is_refused_and_not_shown(token: str) -> None:
    for section in (AdminSection, ApiHttpSection, RespSection):
        with pytest.raises(ValidationError, match="bearer_token") as refused:
            section(bearer_token=token)  # type: ignore[arg-type]
        assert not token or token not in str(refused.value)
    assert ApiHttpSection(bearer_token="s3cret").bearer_token is not None  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [WriterSettings, ReaderSettings])
def test_an_unknown_operator_is_reported_with_its_setting(settings: type[DaemonSettings]) -> None:
    with pytest.raises(SettingsError, match=r"^merge_operator: no merge operator is called 'nobodys'"):
        load_settings(settings, [*URL, "--set", "merge_operator=nobodys"])


def test_fewer_keys_than_none_are_refused() -> None:
    with pytest.raises(SettingsError, match="min_filter_keys must be at least 0"):
        load_settings(WriterSettings, [*URL, "--set", "min_filter_keys=-1"])


def test_a_worker_tells_the_setting_of_an_unknown_operator() -> None:
    settings = load_settings(
        CompactorSettings, [*URL, "--set", "compactor_options.worker.merge_operator=nobodys"]
    ).settings
    with pytest.raises(InvalidRequestError, match=r"^compactor_options\.worker\.merge_operator: no merge operator"):
        settings.transforms()
