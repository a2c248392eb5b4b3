"""Secrets that a debug bundle must not contain, in every form in which they may be written."""

import json
from pathlib import Path

import pytest

from shale_cli.commands.debug.bundle.redaction import Redactor, secrets_of_environment

KNOWN = 's3cr3t/with+odd"chars'
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvplanted\nAAAAplanted\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "hidden", "kept"),
    [
        (f"with {KNOWN} in it", KNOWN, "in it"),
        ("GET /x?a=s3cr3t/with%2Bodd%22chars&b=1", "odd", "b=1"),
        ("GET /x?a=s3cr3t%2Fwith%2Bodd%22chars&b=1", "odd", "b=1"),
        ('text {"x": "s3cr3t/with+odd\\"chars"} n=1', "odd", "n=1"),
        ("password: czNjcjN0L3dpdGgrb2RkImNoYXJz", "czNj", "password"),
        ("data czNjcjN0L3dpdGgrb2RkImNoYXJz", "czNj", "data"),
        ("https://a.blob.core.windows.net/c?sv=2022&sig=planted%3D&se=1", "planted", "se=1"),
        ("SharedAccessSignature=sv=1&sig=planted;x", "planted", "Signature"),
        ("Server=db;Pwd=planted;Timeout=3", "planted", "Timeout=3"),
        ("private_key=planted next", "planted", "next"),
        (f"before\n{PEM}\nafter", "planted", "after"),
        (f"host app: {PEM}\nafter", "planted", "after"),
        ("X-Amz-Signature=planted&X-Amz-Date=1", "planted", "Date=1"),
        ("put value='planted \\'x' seq=3", "planted", "seq=3"),
        ("put value: 'planted' seq=3", "planted", "seq=3"),
        ('line {"value": "planted", "seq": 3}', "planted", '"seq": 3'),
        ('{"event": "put", "value": {"a": "planted"}, "seq": 3}', "planted", '"seq":3'),
        ('{"event": "put", "values": ["planted", 7], "seq": 3}', "planted", '"seq":3'),
        ('{"event": "put", "value_b64": "cGxhbnRlZA==", "seq": 3}', "cGxh", '"seq":3'),
        ('{"event": "add", "row": {"value": 424242}, "seq": 3}', "424242", '"seq":3'),
    ],
)
@pytest.mark.parametrize("keeps_keys", [False, True])
def test_secrets_and_values_are_taken_out(text: str, hidden: str, kept: str, keeps_keys: bool) -> None:
    """Values are removed even if the bundle may contain keys."""
    shown = Redactor([KNOWN], keeps_keys=keeps_keys).lines(text)
    assert hidden not in shown
    assert kept in shown


@pytest.mark.parametrize(
    "text",
    [
        "get first_key=planted seq=3",
        "fails at b'planted'",
        'say {"start": "planted"}',
        '{"stop_b64": "planted", "n": 1}',
    ],
)
def test_keys_are_taken_out_unless_they_may_stay(text: str) -> None:
    assert "planted" not in Redactor([], keeps_keys=False).lines(text)
    assert "planted" in Redactor([], keeps_keys=True).lines(text)


def test_text_without_secrets_is_unchanged() -> None:
    lines = 'shale_up 1\nmonkey=1 turnkey: 2\n{"event":"flush","count":3,"took_ms":4,"done":true}\nvaluable=5'
    assert Redactor([KNOWN], keeps_keys=False).lines(lines) == lines


def test_what_is_in_files_of_credentials_is_a_secret(tmp_path: Path) -> None:
    account = tmp_path / "account.json"
    account.write_text(json.dumps({"private_key_id": "0123456789abcdef-planted"}))
    (tmp_path / "none").unlink(missing_ok=True)
    found = secrets_of_environment(
        {"GOOGLE_APPLICATION_CREDENTIALS": str(account), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}
    )
    assert "0123456789abcdef-planted" in found
