"""Policies of S3 in the language of IAM, which MinIO and versitygw understand, too."""

from collections.abc import Mapping
from typing import Any

from deploy.policies.roles import EVERYTHING, Operation, Place, Right, Role

ACTIONS: Mapping[Operation, tuple[str, ...]] = {
    Operation.GET: ("s3:GetObject",),
    # A large object is uploaded in parts, and an upload that fails is aborted.
    Operation.PUT: ("s3:PutObject", "s3:AbortMultipartUpload"),
    Operation.DELETE: ("s3:DeleteObject",),
}
EXAMPLE: Mapping[Place, str] = {
    Place.DATABASE: "bucket/orders",
    Place.BACKUPS: "backups/orders",
    Place.TARGET: "bucket/orders-copy",
}
"""The bucket and path of each place in the policies of this folder."""


def policy(role: Role, locations: Mapping[Place, str] = EXAMPLE) -> dict[str, Any]:
    """Return the policy of a role.

    Args:
        locations: bucket and path of each place of the role: ``bucket/orders``.
    """
    statements = [_objects(right, locations[right.place]) for right in _merged(role)]
    return {
        "Version": "2012-10-17",
        "Statement": [*statements, *(_listing(locations[place]) for place in role.places())],
    }


def _merged(role: Role) -> list[Right]:
    """Return the rights with one entry for equal operations in a place."""
    merged: dict[tuple[Place, tuple[Operation, ...]], tuple[str, ...]] = {}
    for right in role.rights:
        found = merged.setdefault((right.place, right.operations), ())
        merged[right.place, right.operations] = tuple(dict.fromkeys((*found, *right.prefixes)))
    return [Right(operations, prefixes, "", place) for (place, operations), prefixes in merged.items()]


def _objects(right: Right, location: str) -> dict[str, Any]:
    actions = [action for operation in right.operations for action in ACTIONS[operation]]
    names = (
        ["*"] if EVERYTHING in right.prefixes else [f"{each}*" if each[-1] == "/" else each for each in right.prefixes]
    )
    return {"Effect": "Allow", "Action": actions, "Resource": [f"arn:aws:s3:::{location}/{name}" for name in names]}


def _listing(location: str) -> dict[str, Any]:
    bucket, path = location.split("/", 1)
    return {
        "Effect": "Allow",
        "Action": "s3:ListBucket",
        "Resource": f"arn:aws:s3:::{bucket}",
        "Condition": {"StringLike": {"s3:prefix": f"{path}/*"}},
    }
