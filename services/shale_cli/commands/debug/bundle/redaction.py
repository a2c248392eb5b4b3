"""Removes secrets from text: known secrets wherever they occur, unknown ones by patterns."""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

from shale.service.config.secret_url import SecretUrl

SECRET = "<secret>"  # noqa: S105 - the replacement of a secret
LEFT_OUT = "<left out>"
_LONG_WORD = re.compile(r"[\w+/=-]{16,}")
_LENGTH_MIN = 4
"""Shorter secrets would match large parts of the text."""

_SECRET_NAME = re.compile(
    r"secret|token|passw|pwd|credential|authorization|signature|connection_?string|private|access_?key|account_?key|api_?key"
    r"|(^|_)(auth|key|sig)$",
    re.IGNORECASE,
)
_KEY_NAMES = "key|keys|start|end|stop|prefix|segment"
_VALUE_NAMES = "value|values|row|rows"
_FORMS = "(?:_b64|_hex)?"
_KEY_NAME = re.compile(f"(?i)(?:{_KEY_NAMES}){_FORMS}")
_VALUE_NAME = re.compile(f"(?i)(?:{_VALUE_NAMES}){_FORMS}")
_FILES_OF_SECRETS = (
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
)
_BLOCK = re.compile(r"-----BEGIN [^-\n]*-----.{0,20000}?-----END [^-\n]*-----", re.DOTALL)

_PATTERNS = (
    (re.compile(r"-----BEGIN [^-]*-----.*?(-----END [^-]*-----|$)", re.DOTALL), SECRET),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), rf"\1 {SECRET}"),
    (re.compile(r"(?P<scheme>\w://)[^/\s@\"']+@"), rf"\g<scheme>{SECRET}@"),
    (re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"), SECRET),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), SECRET),
    (re.compile(r"(?i)([?&;]sig=)[^&;\s\"']+"), rf"\1{SECRET}"),
    (
        re.compile(
            r"(?i)([\w-]*(?:secret|token|passw|pwd|credential|authorization|signature|access[_-]?key|account[_-]?key|"
            r"api[_-]?key|private[_-]?key)[\w-]*[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&}\"']+)"
        ),
        rf"\1{SECRET}",
    ),
)
_QUOTED = r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"


def _called(names: str) -> "tuple[re.Pattern[str], str]":
    """Return a pattern for the value of such a name: any text after ``=``, quoted text after a colon."""
    name = rf"(?<![a-z])(?:{names}){_FORMS}[\"']?"
    return (
        re.compile(rf"({name}\s*=\s*)(?:b?{_QUOTED}|[^\s\"']+)|({name}\s*:\s*)b?{_QUOTED}", re.IGNORECASE),
        rf"\1\2{LEFT_OUT}",
    )


_VALUE_PATTERNS = (_called(_VALUE_NAMES),)
_KEY_PATTERNS = ((re.compile(rf"\bb{_QUOTED}"), LEFT_OUT), _called(_KEY_NAMES))


class Redactor:
    """Removes secrets from text and JSON.

    Args:
        secrets: known secrets; they are removed wherever they occur.
        keeps_keys: whether to keep keys of rows.
    """

    def __init__(self, secrets: Iterable[str], *, keeps_keys: bool) -> None:
        # Longest first: a secret may be a prefix of another one.
        forms = {form for each in secrets if len(each) >= _LENGTH_MIN for form in _forms(each)}
        known = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        self.keeps_keys = keeps_keys

    def text(self, text: str) -> str:
        """Remove secrets from text, and keys and values in the form in which log messages show them."""
        if self._known is not None:
            text = self._known.sub(SECRET, text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        for pattern, instead in (*_VALUE_PATTERNS, *(() if self.keeps_keys else _KEY_PATTERNS)):
            text = pattern.sub(instead, text)
        return text

    def lines(self, text: str) -> str:
        """Remove secrets from the lines of a log or a response, also those that span lines."""
        return "\n".join(map(self.log_line, _BLOCK.sub(SECRET, text).splitlines()))

    def value(self, value: Any) -> Any:
        """Remove secrets from JSON: fields by their names, and every string."""
        match value:
            case dict():
                return {self.text(str(name)): self._field(str(name), below) for name, below in value.items()}
            case list() | tuple():
                return [self.value(each) for each in value]
            case str():
                return self.text(value)
            case _:
                return value

    def log_line(self, line: str) -> str:
        """Remove secrets from a log line, as JSON if it is JSON, otherwise as text."""
        import orjson

        try:
            fields = orjson.loads(line)
        except orjson.JSONDecodeError:
            return self.text(line)
        if not isinstance(fields, dict):
            return self.text(line)
        return orjson.dumps(self.value({name: self._said(name, value) for name, value in fields.items()})).decode()

    def _field(self, name: str, value: Any) -> Any:
        if is_secret_name(name) and isinstance(value, str) and value:
            return SECRET
        if isinstance(value, str) and self._is_data(name):
            return LEFT_OUT
        return self.value(value)

    def _said(self, name: str, value: Any) -> Any:
        """Remove values from a field of a foreign log line, where a value may have any type."""
        if self._is_data(name) and value is not None and not isinstance(value, bool):
            return LEFT_OUT
        if isinstance(value, dict):
            return {below: self._said(below, each) for below, each in value.items()}
        return value

    def _is_data(self, name: str) -> bool:
        return _VALUE_NAME.fullmatch(name) is not None or (
            not self.keeps_keys and _KEY_NAME.fullmatch(name) is not None
        )


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret in plain form and in the encodings of URLs, JSON and Kubernetes."""
    yield secret
    yield quote(secret)
    yield quote(secret, safe="")
    yield json.dumps(secret)[1:-1]
    yield base64.b64encode(secret.encode(errors="surrogateescape")).decode()


def is_secret_name(name: str) -> bool:
    """Return whether a name indicates a secret."""
    return _SECRET_NAME.search(name) is not None


def secrets_of_environment(environment: Mapping[str, str]) -> set[str]:
    """Return the values of variables with secret names, and the secrets in credential files that variables name."""
    files = [Path(environment[name]) for name in _FILES_OF_SECRETS if environment.get(name)]
    return {value for name, value in environment.items() if is_secret_name(name) and value} | secrets_of_files(files)


def secrets_of_files(files: Iterable[Path]) -> set[str]:
    """Return every long word in files of secrets, and the whole content of each file."""
    found: set[str] = set()
    for file in files:
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue  # A file that cannot be read cannot leak into the bundle.
        found |= {text.strip(), *_LONG_WORD.findall(text)}
    return found


def secrets_of_settings(settings: BaseModel) -> set[str]:
    """Return every secret in loaded settings."""
    return {secret for _, value in settings for secret in _secrets_of(value)}


def _secrets_of(value: object) -> Iterator[str]:
    match value:
        case SecretStr():
            yield value.get_secret_value()
        case SecretUrl() if str(value) != value.get_secret_value():
            yield value.get_secret_value()
        case BaseModel():
            yield from secrets_of_settings(value)
        case tuple():
            for each in value:
                yield from _secrets_of(each)
        case dict():
            for each in value.values():
                yield from _secrets_of(each)
        case _:
            return
