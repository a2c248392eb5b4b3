"""The default compactor options of SlateDB."""

import json
from typing import Any

from slatedb import uniffi as slate


def default_compactor_options() -> dict[str, Any]:
    options: dict[str, Any] = json.loads(slate.Settings.default().to_json_string())["compactor_options"]
    return options
