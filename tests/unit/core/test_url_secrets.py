"""Passwords, tokens and signatures in URLs are hidden."""

import pytest

from shale.core.url_secrets import without_url_secrets, without_userinfo


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:pw@host:9000/a", "http://user:***@host:9000/a"),
        ("http://:pw@host", "http://:***@host"),
        ("http://user:p/w@host and s3://b/db", "http://user:***@host and s3://b/db"),
        ('in URI: "postgresql://user:pw@[bad/db"', 'in URI: "postgresql://user:***@[bad/db"'),
        ("https://host/a?X-Amz-Signature=abc&b=1", "https://host/a?X-Amz-Signature=***&b=1"),
        ("PUT /c/b?se=2026&sig=a%2Fb&sp=r HTTP/1.1", "PUT /c/b?se=2026&sig=***&sp=r HTTP/1.1"),
        ("gs://?X-Goog-Credential=a@b&X-Goog-Signature=c", "gs://?X-Goog-Credential=***&X-Goog-Signature=***"),
        ("?AWSAccessKeyId=a&Signature=b&Expires=1", "?AWSAccessKeyId=***&Signature=***&Expires=1"),
        ("mysql://host/db?password=a&ssl=1", "mysql://host/db?password=***&ssl=1"),
        ("sc://host:1/;token=abc;use_ssl=true", "sc://host:1/;token=***;use_ssl=true"),
        ("http://host/v1/admin/flush?access_token=abc", "http://host/v1/admin/flush?access_token=***"),
        ("https://only-a-token@host/a", "https://***@host/a"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("postgresql://u:pa@ss@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:p/a@s/s@h/db", "postgresql://u:***@h/db"),
        ("postgresql://us@er:pw@h/db", "postgresql://us@er:***@h/db"),
        ("https://to@ke@n@h:1/a", "https://***@h:1/a"),
        ("https://to@k:en@h", "https://***@h"),
        ("token=abc is no query", "token=abc is no query"),
        ("http://127.0.0.1:9464/metrics", "http://127.0.0.1:9464/metrics"),
        ("no URL: a@b", "no URL: a@b"),
    ],
)
def test_passwords_tokens_and_signatures_in_text(text: str, shown: str) -> None:
    assert without_url_secrets(text) == shown


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://user:pw@host:1", "http://***@host:1"),
        ("user:p@w@host", "***@host"),
        ("http://host:9000", "http://host:9000"),
    ],
)
def test_all_before_the_at_sign_of_an_address(address: str, shown: str) -> None:
    assert without_userinfo(address) == shown
