"""Hides passwords, tokens and signatures in URLs, for logs, messages and the printed settings."""

import re

HIDDEN = "***"
_QUERY_SECRET = re.compile(
    r"(?i)([?&;](?:sig|x-amz-credential|x-goog-credential|awsaccesskeyid|googleaccessid"
    r"|[\w.-]*(?:token|password|passwd|pwd|secret|signature|api_?key)[\w.-]*)=)[^&;\s\"']+"
)
"""Signed URLs of S3, GCS and Azure, and parameters that are called like a secret.  A request may show only its path."""
# A password may hold a slash or an @ that should have been encoded, so all up to the last @ may be a part of it.
_URL_PASSWORD = re.compile(r"(://[^/\s:\"']*:)[^\s\"']+@")
_HTTP_USERINFO = re.compile(r"(?i)(https?://)[^/\s:@\"']+(?:@[^/\s\"']*)?@")
"""Some servers take a token in place of a name and a password."""


def without_url_secrets(text: str) -> str:
    """Return the text with the passwords, tokens and signatures of its URLs hidden."""
    if "=" in text:
        text = _QUERY_SECRET.sub(rf"\1{HIDDEN}", text)
    if "@" not in text or "://" not in text:
        return text
    return _HTTP_USERINFO.sub(rf"\1{HIDDEN}@", _URL_PASSWORD.sub(rf"\1{HIDDEN}@", text))


def without_userinfo(address: str) -> str:
    """Return an address with all that is before its ``@`` hidden, also if it is no URL.

    An ``@`` in the path of a URL stays, such as that of ``file:///data/a@b``, unless a password with a slash may be
    before it.
    """
    userinfo, at, rest = address.rpartition("@")
    if not at:
        return address
    scheme, separator, below = userinfo.partition("://")
    if not separator:
        return f"{HIDDEN}@{rest}"
    authority, slash, _ = below.partition("/")
    is_path = slash and not any(mark in authority for mark in "@:") and not scheme.lower().startswith("http")
    return address if is_path else f"{scheme}{separator}{HIDDEN}@{rest}"
