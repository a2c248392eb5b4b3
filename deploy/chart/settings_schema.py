"""The JSON Schema of the chart's ``settings``, made of the schemas of the daemons.

A key at the top is read by every daemon, so its value must suit each daemon that has it, and the other daemons must
ignore it.  A section named after a daemon is read by this daemon only.
"""

import json
from collections.abc import Iterator
from typing import Any

from shale.service.config.config_sources import ROLES, SHARED_SECTIONS, SLATEDB_KEYS
from shale_cli.framework.daemons import settings_class

Schema = dict[str, Any]

MADE_BY_CHART = {
    "": {"database", "config", "tokens", "embedded_worker", "take_over", "dry_run", "once"},
    "store": {"endpoint", "region"},
    "admin": {"port", "host", "require_token"},
    "http": {"port", "host"},
    "resp": {"port", "host", "enabled"},
    "standby": {"enabled"},
}
"""Settings by section that other values of the chart make, or that must not differ from its ports."""


def settings_definitions() -> Schema:
    """Return the definitions ``settings``, ``databaseSettings`` (of one of several databases) and what they share.

    One gc serves several databases, so that a database has no section for it.
    """
    definitions: Schema = {}
    whole = _shared(_settings(), definitions)
    properties = {name: each for name, each in whole["properties"].items() if name != "gc"}
    return {"settings": whole, "databaseSettings": {**whole, "properties": properties}, **definitions}


def _settings() -> Schema:
    daemons = {role: _plain(settings_class(role).model_json_schema()) for role in ROLES}
    # SlateDB's keys that no daemon has are ignored, so that its settings file can be taken as it is.
    properties: Schema = {name: {} for name in sorted(SLATEDB_KEYS)}
    for name in sorted({name for daemon in daemons.values() for name in daemon}):
        takers = [daemon[name] for daemon in daemons.values() if name in daemon]
        if len(takers) == len(ROLES) or name in SLATEDB_KEYS | SHARED_SECTIONS:
            properties[name] = _all_of(takers)
    for role, daemon in daemons.items():
        section = {"type": "object", "additionalProperties": False, "properties": daemon}
        properties[role] = {"title": f"{role.title()}Settings", **section}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _shared(schema: Any, definitions: Schema) -> Any:
    """Move every schema with a title to the definitions; equal ones are there once."""
    if isinstance(schema, list):
        return [_shared(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _shared(value, definitions) for key, value in schema.items() if key != "title"}
    title = schema.get("title")
    if not isinstance(title, str):
        return found
    number, name = 1, title
    while definitions.setdefault(name, found) != found:
        number += 1
        name = f"{title}{number}"
    return {"$ref": f"#/definitions/{name}"}


def _all_of(schemas: list[Schema]) -> Schema:
    different = list({json.dumps(each, sort_keys=True): each for each in schemas}.values())
    return different[0] if len(different) == 1 else {"allOf": different}


def _plain(schema: Schema) -> Schema:
    """Return the properties of a daemon with its definitions in place, without secrets and what the chart makes."""
    definitions = schema.get("$defs", {})
    properties: Schema = schema["properties"]
    return {
        name: _resolved(each, definitions, MADE_BY_CHART.get(name, set()))
        for name, each in properties.items()
        if name not in MADE_BY_CHART[""]
    }


def _resolved(schema: Any, definitions: Schema, removed: set[str]) -> Any:
    if isinstance(schema, list):
        return [_resolved(each, definitions, removed) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return {"title": name, **_resolved(definitions[name], definitions, removed)}
    found = {key: _resolved(value, definitions, removed) for key, value in schema.items() if key in _KEPT}
    if "properties" in schema:
        found["properties"] = {
            name: _resolved(each, definitions, set())
            for name, each in schema["properties"].items()
            if name not in removed and not _is_secret(each)
        }
    return found


_KEPT = {
    "type", "description", "enum", "const", "anyOf", "allOf", "items", "prefixItems", "additionalProperties",
    "required", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern",
    "minItems", "maxItems",
}  # fmt: skip
"""Keywords that are kept; defaults stay in the daemons, and titles repeat the names."""


def _is_secret(schema: Schema) -> bool:
    return any(each.get("writeOnly") for each in _alternatives(schema))


def _alternatives(schema: Schema) -> Iterator[Schema]:
    yield schema
    for each in schema.get("anyOf", []):
        yield from _alternatives(each)
