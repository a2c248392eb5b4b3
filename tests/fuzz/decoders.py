"""Finds the modules that decode bytes or text of others, by the functions that they call or define."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.paths import REPOSITORY

_CALLS = frozenset(
    (
        *("unpack", "unpack_from", "iter_unpack", "from_bytes", "loads", "unpackb", "Unpacker", "safe_load", "fromhex"),
        *("b64decode", "urlsafe_b64decode", "a2b_base64", "unhexlify", "parse_qsl", "parse_qs", "unquote"),
        *("unquote_to_bytes", "urlsplit", "urlparse", "fromisoformat", "verify_root", "decompress", "decompress_raw"),
        *("literal_eval", "read_csv", "open_csv", "read_json", "read_table", "ParquetFile", "open_stream", "open_file"),
    )
)
_DEFINITION = re.compile(r"_?(?:decode|parse)(?:d|_\w+)?|open_section|from_json\w*")
_MAYBE = re.compile(rf"def _?(?:decode|parse|open_section|from_json)|\b(?:{'|'.join(sorted(_CALLS))})\(")
"""Parsing the source of a module takes a hundred times as long."""
_SOURCES = ("shared/shale", "services")
_LEFT_OUT = ("_generated", "/kernels/", "/demo/", "/telemetry/", "/testing/")


@cache
def decoding_modules() -> dict[str, str]:
    """Return the names of the modules, each with the first function that shows it."""
    found = {}
    for source in _SOURCES:
        for path in sorted((REPOSITORY / source).rglob("*.py")):
            text = path.read_text()
            if not any(part in str(path) for part in _LEFT_OUT) and _MAYBE.search(text):
                sign = next(_signs(ast.parse(text)), None)
                if sign is not None:
                    found[_module(path)] = sign
    return found


def _signs(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _DEFINITION.fullmatch(node.name):
            yield f"def {node.name}"
        elif isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in _CALLS:
                yield f"{name}()"


def _module(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts[1:]
    return ".".join(parts).removesuffix(".__init__")
