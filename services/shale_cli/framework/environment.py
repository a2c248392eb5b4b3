"""Sets variables from ``--env-file`` and SlateDB's ``CLOUD_PROVIDER`` (docs/reference/protocol.md 13.2).

Both apply to commands and daemons.  Credentials need no translation: the cloud clients read them.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from shale.errors import InvalidRequestError

ENV_FILE = "--env-file"
_PLACE_OPTIONS = ("--url", "-u", "--store", "--config")
_PLACE_VARIABLES = ("SHALE_URL", "SHALE_STORE", "SHALE_DATABASE__URL", "SHALE_DATABASE__STORE", "SHALE_CONFIG")
_BUCKETS = {
    "aws": ("s3", ("AWS_BUCKET", "AWS_BUCKET_NAME")),
    "azure": ("az", ("AZURE_CONTAINER_NAME", "AZURE_STORAGE_CONTAINER_NAME")),
    "gcp": ("gs", ("GOOGLE_BUCKET", "GOOGLE_BUCKET_NAME")),
}


def with_environment(arguments: Sequence[str], noun_index: int | None) -> list[str]:
    """Set variables of files and of the provider; return the command line without ``--env-file``.

    Args:
        arguments: the command line.
        noun_index: the index of the command's name; after it, ``-e`` belongs to the command.

    Raises:
        InvalidRequestError: a file cannot be read, or the provider lacks a variable.
    """
    files, left = _env_files(arguments, len(arguments) if noun_index is None else noun_index)
    for file in files:
        for name, value in read_variables(Path(file)).items():
            os.environ.setdefault(name, value)
    if "CLOUD_PROVIDER" in os.environ and not _names_database(left, os.environ):
        os.environ["SHALE_STORE"] = store_of_provider(os.environ)
    return left


def read_variables(file: Path) -> dict[str, str]:
    """Parse lines ``NAME=value``; ``export``, quotes, comments and empty lines are allowed.

    Raises:
        InvalidRequestError: the file cannot be read, or a line is malformed.
    """
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{ENV_FILE} {file}: {getattr(error, 'strerror', None) or error}") from error
    found: dict[str, str] = {}
    for number, raw in enumerate(lines, 1):
        line = raw.strip().removeprefix("export ").strip()
        name, equals, value = line.partition("=")
        if not line or line.startswith("#"):
            continue
        if not equals or not name.strip():
            # The line may contain a secret, so the message has only its number.
            raise InvalidRequestError(f"{ENV_FILE} {file}: line {number} is not NAME=value")
        found[name.strip()] = _unquoted(value.strip())
    return found


def store_of_provider(environ: Mapping[str, str]) -> str:
    """Return the URL of the store of ``CLOUD_PROVIDER`` and the variables of that provider.

    Raises:
        InvalidRequestError: the provider is unknown, or a variable is missing.
    """
    provider = environ["CLOUD_PROVIDER"].lower()
    if provider == "memory":
        return "memory:///"
    if provider == "local":
        if not environ.get("LOCAL_PATH"):
            raise InvalidRequestError("CLOUD_PROVIDER is local: LOCAL_PATH is missing")
        return "file://" + quote(str(Path(environ["LOCAL_PATH"]).resolve()))
    if provider not in _BUCKETS:
        raise InvalidRequestError(f"CLOUD_PROVIDER {provider!r} is none of local, memory, {', '.join(_BUCKETS)}")
    scheme, names = _BUCKETS[provider]
    bucket = next((environ[name] for name in names if environ.get(name)), None)
    if bucket is None:
        raise InvalidRequestError(f"CLOUD_PROVIDER is {provider}: {names[0]} is missing")
    return f"{scheme}://{bucket}"


def _env_files(arguments: Sequence[str], noun_index: int) -> tuple[list[str], list[str]]:
    files: list[str] = []
    left: list[str] = []
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        if argument == "--":
            break
        is_short = argument == "-e" and at < noun_index
        if (argument == ENV_FILE or is_short) and at + 1 < len(arguments):
            files.append(arguments[at + 1])
            at += 2
        elif argument.startswith(f"{ENV_FILE}="):
            files.append(argument.partition("=")[2])
            at += 1
        else:
            left.append(argument)
            at += 1
    return files, left + list(arguments[at:])


def _names_database(arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether an option or variable of Shale names the database, which has precedence."""
    given = any(argument.partition("=")[0] in _PLACE_OPTIONS for argument in arguments)
    return given or any(name in environ for name in _PLACE_VARIABLES)


def _unquoted(value: str) -> str:
    for quote_ in ("'", '"'):
        if len(value) >= 2 and value.startswith(quote_) and value.endswith(quote_):
            return value[1:-1]
    return value.partition(" #")[0].strip()
