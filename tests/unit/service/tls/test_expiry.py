"""The expiry of a certificate, read from its bytes."""

import datetime
from pathlib import Path

import pytest

from shale.service.tls.expiry import expiry_s
from tests.certificates import Authority


@pytest.mark.parametrize("year", [2031, 2049, pytest.param(2050, id="2050: as GeneralizedTime"), 2060])
def test_the_expiry_of_the_first_certificate(tmp_path: Path, year: int) -> None:
    authority = Authority(tmp_path)
    until = datetime.datetime(year, 7, 9, 13, 45, 59, tzinfo=datetime.UTC)
    certificate, _ = authority.issue("server", until=until)
    assert expiry_s(f"a comment\n{certificate.read_text()}{authority.ca_file.read_text()}") == until.timestamp()


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="certificate"):
        expiry_s(text)
