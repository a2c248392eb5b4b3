"""Reads when a certificate expires, without a package for X.509.

```
Certificate  ::= SEQUENCE { tbsCertificate, … }
TBSCertificate ::= SEQUENCE { [0] version OPTIONAL, serialNumber, signature, issuer, validity, … }
Validity     ::= SEQUENCE { notBefore Time, notAfter Time }
```

Source: RFC 5280, section 4.1.
"""

import calendar
import re
import ssl

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
_FIELDS_BEFORE_VALIDITY = 3


def expiry_s(pem: str) -> int:
    """Return when the first certificate of a PEM file expires, in seconds since 1970.

    Raises:
        ValueError: there is no certificate, or it is malformed.
    """
    found = _PEM.search(pem)
    if found is None:
        raise ValueError("there is no certificate")
    data = ssl.PEM_cert_to_DER_cert(found.group())
    try:
        _, at, _ = _element(data, 0)
        _, at, _ = _element(data, at)
        tag, _, end = _element(data, at)
        if tag == _VERSION:
            at = end
        for _ in range(_FIELDS_BEFORE_VALIDITY):
            _, _, at = _element(data, at)
        _, at, _ = _element(data, at)
        _, _, at = _element(data, at)
        tag, start, end = _element(data, at)
        return _seconds(tag, data[start:end].decode("ascii"))
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("the certificate is malformed") from error


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """Return tag, start and end of the content of the element at an offset."""
    tag, length, start = data[at], data[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    return tag, start, start + length


def _seconds(tag: int, text: str) -> int:
    if tag not in (_UTC_TIME, _GENERALIZED_TIME) or not re.fullmatch(r"\d{12}(\d\d)?Z", text):
        raise ValueError("the time of expiry is malformed")
    if tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    fields = [int(text[:4]), *(int(text[at : at + 2]) for at in range(4, 14, 2))]
    return calendar.timegm((*fields, 0, 0, 0))
