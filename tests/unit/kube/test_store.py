"""Tests of the log of the store, by which the check knows who uses which key."""

from tests.kube.store import REFUSED, Key, Request, parse_request

SERVED = (
    "root shale [26/November/2026:16:00:00 +0000] 10.98.1.4 shale-new 1F2E s3_GetObject orders/manifest/1 "
    "/shale/orders/manifest/1 200 - 12 12 3 3 - shale - - SigV4 - AuthHeader s3.us-east-1.amazonaws.com - arn Yes"
)


def test_a_request_has_its_sender_and_its_key() -> None:
    assert parse_request(SERVED) == Request("10.98.1.4", "shale-new", "-")


def test_a_refused_request_has_no_key() -> None:
    line = SERVED.replace("shale-new", "-").replace("200 - 12", f"403 {REFUSED} 12")
    assert parse_request(line) == Request("10.98.1.4", "-", REFUSED)


def test_keys_have_secrets_of_their_own() -> None:
    assert Key("a").secret != Key("a").secret
