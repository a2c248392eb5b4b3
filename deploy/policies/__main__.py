"""Print the policy of a process that has one role, or several.

python -m deploy.policies writer --database s3://bucket/orders
python -m deploy.policies compactor worker --database s3://bucket/orders
"""

import argparse
import json
from collections.abc import Sequence

from deploy.policies.roles import ROLES, Place, Role
from deploy.policies.s3 import EXAMPLE, policy


def location(url: str) -> str:
    """Return bucket and path of a URL of S3."""
    found = url.removeprefix("s3://").strip("/")
    if not url.startswith("s3://") or "/" not in found:
        raise argparse.ArgumentTypeError(f"{url!r}: give a bucket and a path, such as s3://bucket/orders")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one policy."""
    parser = argparse.ArgumentParser(prog="python -m deploy.policies")
    parser.add_argument("roles", nargs="+", choices=[role.name for role in ROLES], metavar="ROLE")
    for place in Place:
        parser.add_argument(f"--{place}", type=location, metavar="URL", default=f"s3://{EXAMPLE[place]}")
    given = vars(parser.parse_args(arguments))
    rights = tuple(right for role in ROLES if role.name in given["roles"] for right in role.rights)
    print(json.dumps(policy(Role("", "", rights), {place: given[place] for place in Place}), indent=2))


if __name__ == "__main__":
    main()
