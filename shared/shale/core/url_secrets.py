"""Hides passwords and signatures in URLs, for logs, messages and the printed settings."""

import re

HIDDEN = "***"
_SIGNED_URL = re.compile(r"(?i)([?&](?:x-amz-signature|x-amz-credential|x-amz-security-token|sig|signature)=)[^&\s]+")
# A password may hold a slash that should have been encoded.
_URL_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^\s@\"']+@")


def without_url_secrets(text: str) -> str:
    """Return the text with the passwords and signatures of its URLs hidden."""
    if "://" not in text:
        return text
    return _URL_PASSWORD.sub(rf"\1{HIDDEN}@", _SIGNED_URL.sub(rf"\1{HIDDEN}", text))


def without_userinfo(address: str) -> str:
    """Return an address with all that is before its ``@`` hidden, also if it is no URL."""
    userinfo, at, rest = address.rpartition("@")
    if not at:
        return address
    scheme, separator, _ = userinfo.partition("://")
    return f"{scheme}{separator}{HIDDEN}@{rest}" if separator else f"{HIDDEN}@{rest}"
