"""Finds ports that other machines reach, and that take requests from all of them."""

from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple


class ListeningPort(NamedTuple):
    """A port of a daemon: its section of the settings, its address, and what protects it.

    ``is_protected``: it requires a token or a certificate, or refuses everything.  ``remedy``: the settings with its
    token.
    """

    section: str
    host: str
    is_protected: bool
    remedy: str


def exposed_ports(ports: Iterable[ListeningPort]) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the setting and the problem of each port that other machines reach and nothing protects."""
    for port in ports:
        if not port.is_protected and not is_loopback(port.host):
            problem = (
                f"other machines reach {port.host or 'all addresses'}, and the port takes requests from all of them: "
                f"set {port.remedy}, or tls.client_ca_file, or listen on 127.0.0.1, or accept it with "
                "auth.insecure = true"
            )
            yield (port.section, "host"), problem


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.  A name counts as not, but for ``localhost``."""
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
