"""Tokens and their roles."""

import pytest
from pydantic import SecretStr, TypeAdapter, ValidationError

from shale.client.authorization import authorization
from shale.core.token_hash import token_hash
from shale.errors import InvalidRequestError
from shale.service.access import AccessTokens, Role
from shale.service.config.access.tokens import PlainToken, TokensSection

KNOWN = [(SecretStr("r1"), Role.READ), (SecretStr("r2"), Role.READ), (SecretStr("w"), Role.WRITE)]


def test_a_port_without_tokens_is_open() -> None:
    assert AccessTokens().is_open
    assert AccessTokens().role_of(b"") is None
    assert not AccessTokens(KNOWN).is_open


@pytest.mark.parametrize(
    ("token", "role"),
    [
        (b"r1", Role.READ),
        (b"r2", Role.READ),
        (b"w", Role.WRITE),
        (b"r", None),
        (b"", None),
        (b"W", None),
        (b"r1r2", None),
    ],
)
def test_the_role_of_a_token(token: bytes, role: Role | None) -> None:
    assert AccessTokens(KNOWN).role_of(token) is role


def test_a_token_with_two_roles_has_the_higher_one() -> None:
    for both in ([Role.READ, Role.ADMIN], [Role.ADMIN, Role.READ]):
        assert AccessTokens((SecretStr("t"), role) for role in both).role_of(b"t") is Role.ADMIN


def test_tokens_are_replaced_but_never_by_none() -> None:
    tokens = AccessTokens(KNOWN)
    tokens.replace([(SecretStr("w2"), Role.WRITE)])
    assert (tokens.role_of(b"w"), tokens.role_of(b"w2")) == (None, Role.WRITE)
    tokens.replace([])
    assert not tokens.is_open
    assert tokens.role_of(b"w2") is Role.WRITE


@pytest.mark.parametrize("text", ["a,b", "a b", "a\nb\n", ["a", "b"]], ids=repr)
def test_several_tokens_of_one_role(text: object) -> None:
    section = TokensSection(read=text, admin="c")  # type: ignore[arg-type]
    assert [(token.get_secret_value(), role.label) for token, role in section.roles()] == [
        ("a", "read"),
        ("b", "read"),
        ("c", "admin"),
    ]


@pytest.mark.parametrize("text", ["", " \n", ["a", ""], ["two words"], ["Schlüssel"]], ids=repr)
def test_an_empty_or_unprintable_token_is_an_error_and_not_shown(text: object) -> None:
    with pytest.raises(ValidationError, match="write") as refused:
        TokensSection(write=text)  # type: ignore[arg-type]
    assert "Schlüssel" not in str(refused.value)
    assert "two words" not in str(refused.value)


def test_a_port_that_requires_a_token_is_closed_without_one_and_a_reload_does_not_open_it() -> None:
    tokens = AccessTokens(required=True)
    assert (tokens.is_open, tokens.is_closed) == (False, True)
    tokens.replace(())
    assert tokens.is_closed
    tokens.replace(KNOWN)
    assert (tokens.is_open, tokens.is_closed) == (False, False)


def test_the_last_token_of_a_port_that_requires_one_is_revoked() -> None:
    for before, after in ((True, True), (False, True), (True, False)):
        tokens = AccessTokens(KNOWN, required=before)
        assert list(tokens.replace((), required=after)) == []
        assert tokens.role_of(b"w") is None
        assert tokens.is_closed


def test_a_port_that_keeps_its_last_token_says_so_at_each_reload(caplog: pytest.LogCaptureFixture) -> None:
    settings = ("tokens", "http.bearer_token")
    tokens = AccessTokens(KNOWN, settings=settings)
    assert list(tokens.replace(KNOWN[:1])) == []
    assert "auth.tokens.kept" not in caplog.text
    for times in (1, 2):
        assert tuple(tokens.replace(())) == settings
        assert caplog.text.count("auth.tokens.kept") == times


def test_a_reload_can_close_an_open_port() -> None:
    tokens = AccessTokens()
    tokens.replace((), required=True)
    assert tokens.is_closed


def test_a_setting_may_hold_the_hash_of_a_token_which_is_no_token() -> None:
    hashed = token_hash("w1")
    tokens = AccessTokens(TokensSection(write=f"{hashed} w2").roles())  # type: ignore[arg-type]
    assert tokens.role_of(b"w1") is Role.WRITE, "both tokens are valid during a rotation"
    assert tokens.role_of(b"w2") is Role.WRITE
    assert tokens.role_of(hashed.encode()) is None


def test_the_digits_of_a_hash_may_be_upper_case() -> None:
    hashed = "sha256:" + token_hash("w").removeprefix("sha256:").upper()
    assert AccessTokens([(SecretStr(hashed), Role.WRITE)]).role_of(b"w") is Role.WRITE


@pytest.mark.parametrize("text", ["sha256:", "sha256:abc", f"sha256:{'g' * 64}", f"sha256:{'a' * 65}"])
def test_a_hash_of_another_form_is_an_error(text: str) -> None:
    with pytest.raises(ValidationError, match="64 hexadecimal digits"):
        TokensSection(write=text)  # type: ignore[arg-type]


def test_a_client_and_a_process_that_is_one_take_no_hash() -> None:
    hashed = token_hash("w")
    with pytest.raises(InvalidRequestError, match="send the token itself") as refused:
        authorization(hashed)
    assert hashed[7:] not in str(refused.value)
    with pytest.raises(ValidationError, match="not its hash"):
        TypeAdapter(PlainToken).validate_python(hashed)
