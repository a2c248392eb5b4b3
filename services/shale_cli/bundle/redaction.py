"""Text without secrets: those that are known are taken out wherever they stand, others by how they look."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

SECRET = "<secret>"  # noqa: S105 - what stands for one
LEFT_OUT = "<left out>"
_LONG_WORD = re.compile(r"[\w+/=-]{16,}")
_LENGTH_MIN = 4
"""Shorter ones would take half of the text with them."""

_SECRET_NAME = re.compile(
    r"secret|token|passw|credential|authorization|signature|connection_?string|private|access_?key|account_?key|api_?key"
    r"|(^|_)(auth|key|sig)$",
    re.IGNORECASE,
)
_DATA_NAMES = frozenset({"key", "keys", "value", "values", "row", "rows", "start", "end", "stop", "prefix", "segment"})

_PATTERNS = (
    (re.compile(r"-----BEGIN [^-]*-----.*?(-----END [^-]*-----|$)", re.DOTALL), SECRET),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), rf"\1 {SECRET}"),
    (re.compile(r"(?P<scheme>\w://)[^/\s@\"']+@"), rf"\g<scheme>{SECRET}@"),
    (re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"), SECRET),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), SECRET),
    (
        re.compile(
            r"(?i)([\w-]*(?:secret|token|passw|credential|authorization|signature|access[_-]?key|account[_-]?key|"
            r"api[_-]?key)[\w-]*[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&}\"']+)"
        ),
        rf"\1{SECRET}",
    ),
)
_DATA_PATTERNS = (
    (re.compile(r"b'(?:[^'\\]|\\.)*'|b\"(?:[^\"\\]|\\.)*\""), LEFT_OUT),
    (
        re.compile(r"(?i)\b((?:key|value|row|start|end|stop|prefix|segment)s?)=(\"[^\"]*\"|'[^']*'|\S+)"),
        rf"\1={LEFT_OUT}",
    ),
)


class Redactor:
    """Takes secrets out of text and JSON.

    Args:
        secrets: texts that must not be seen, whatever is around them.
        keeps_keys: whether keys of rows may stay.
    """

    def __init__(self, secrets: Iterable[str], *, keeps_keys: bool) -> None:
        # The longest first: one may be the beginning of another.
        known = sorted({each for each in secrets if len(each) >= _LENGTH_MIN}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        self.keeps_keys = keeps_keys

    def text(self, text: str) -> str:
        """The text without secrets, and without keys and values as our messages show them."""
        if self._known is not None:
            text = self._known.sub(SECRET, text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        for pattern, instead in () if self.keeps_keys else _DATA_PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def value(self, value: Any) -> Any:
        """JSON without secrets: fields by their names, and every text in it."""
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
        """A line of a log: as JSON if it is that, else as text."""
        import orjson

        try:
            fields = orjson.loads(line)
        except orjson.JSONDecodeError:
            return self.text(line)
        if not isinstance(fields, dict):
            return self.text(line)
        return orjson.dumps(self.value(fields)).decode()

    def _field(self, name: str, value: Any) -> Any:
        if is_secret_name(name) and isinstance(value, str) and value:
            return SECRET
        if not self.keeps_keys and name.lower() in _DATA_NAMES and isinstance(value, str):
            return LEFT_OUT
        return self.value(value)


def is_secret_name(name: str) -> bool:
    """Whether what is called so is nobody's business."""
    return _SECRET_NAME.search(name) is not None


def secrets_of_environment(environment: Mapping[str, str]) -> set[str]:
    """Values of variables that are called like secrets."""
    return {value for name, value in environment.items() if is_secret_name(name) and value}


def secrets_of_files(files: Iterable[Path]) -> set[str]:
    """Every long word in files of secrets and keys, and each of them as a whole."""
    found: set[str] = set()
    for file in files:
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue  # What we may not read cannot be in the bundle by our doing.
        found |= {text.strip(), *_LONG_WORD.findall(text)}
    return found


def secrets_of_settings(settings: BaseModel) -> set[str]:
    """Every secret in loaded settings, whichever layer it came from."""
    found: set[str] = set()
    for _, value in settings:
        if isinstance(value, SecretStr):
            found.add(value.get_secret_value())
        elif isinstance(value, BaseModel):
            found |= secrets_of_settings(value)
    return found
