"""What is made of the chart's values: ``values.schema.json`` and ``README.md`` (``make gen``); a test compares them."""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
CHART = HERE.parents[1] / "helm" / "shale"
sys.path.insert(0, str(HERE))

from readme import readme  # noqa: E402 - a module beside this script
from settings_schema import settings_definitions  # noqa: E402


def schema() -> str:
    """Return the schema of the values."""
    tree: dict[str, Any] = yaml.safe_load((HERE / "values.schema.yaml").read_text())
    shared, roles = tree.pop("role"), tree.pop("roles")
    for role, own in roles.items():
        tree["definitions"][role] = {"type": "object", "additionalProperties": False, "properties": {**own, **shared}}
    tree["definitions"] |= settings_definitions()
    return json.dumps(tree, indent=1, ensure_ascii=False) + "\n"


def files() -> dict[Path, str]:
    """Return everything that is made, by where it lies."""
    return {
        CHART / "values.schema.json": schema(),
        CHART / "README.md": readme((HERE / "README.head.md").read_text(), (CHART / "values.yaml").read_text()),
    }


def main() -> None:
    """Write everything."""
    for file, text in files().items():
        file.write_text(text)


if __name__ == "__main__":
    main()
