"""The certificate of the ports.  New connections get a changed one; a broken one is not taken.

A listening socket keeps its context, and the context its certificate, so the handshake of each connection chooses the
newest context (``sni_callback``, which OpenSSL calls also for clients that name no server).
"""

import ssl
from collections.abc import Iterable
from pathlib import Path

import anyio

from shale.errors import InvalidRequestError
from shale.service.config.access.tls_section import TlsSection
from shale.service.tls.expiry import expiry_s
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

log = get_logger("tls")


class ServerCertificate:
    """The certificate of one kind of port.

    Args:
        section: names the files.
        verify: whether clients need a certificate, may have one, or have none.

    Raises:
        InvalidRequestError: a file cannot be used; names the setting.
    """

    def __init__(self, section: TlsSection, verify: ssl.VerifyMode) -> None:
        self._section = section
        self._verify = verify
        self.context = self._current = self._load()
        self.context.sni_callback = self._choose
        self.handshake_timeout_s = section.handshake_timeout

    def reload(self) -> None:
        """Read the files again.

        Raises:
            InvalidRequestError: a file cannot be used; the certificate stays as it was.
        """
        self._current = self._load()

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ARG002
        connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        section = self._section
        assert section.cert_file is not None, "TLS is on"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        setting = "tls.cert_file"
        try:
            # An empty password: OpenSSL would ask for one on the terminal.
            context.load_cert_chain(section.cert_file, section.key_file, password="")
            if section.client_ca_file is not None:
                setting = "tls.client_ca_file"
                context.load_verify_locations(section.client_ca_file)
                context.verify_mode = self._verify
                # A resumed session would skip the check of the certificate after an authority was removed.  With
                # TLS 1.2, OpenSSL resumes by number what it keeps itself, and Python cannot turn that off.
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.options |= ssl.OP_NO_TICKET
                context.num_tickets = 0
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            files = (
                section.client_ca_file
                if setting == "tls.client_ca_file"
                else f"{section.cert_file}, {section.key_file}"
            )
            raise InvalidRequestError(f"{setting}: {files}: cannot be used: {reason}") from error
        return context


class PortCertificates:
    """The certificates of the ports of a daemon, which have the same files.

    ``data``: clients need a certificate, if authorities are set; ``admin``: they may have one, and calls require it.
    """

    def __init__(self, section: TlsSection, metrics: Metrics) -> None:
        self._section = section
        self._expiry = metrics.gauge("shale_tls_certificate_expiry_timestamp_seconds")
        self._success = metrics.gauge("shale_tls_last_reload_success")
        self.data = ServerCertificate(section, ssl.CERT_REQUIRED)
        self.admin = ServerCertificate(section, ssl.CERT_OPTIONAL)
        self._seen = self._state()
        self._succeeded()

    def reload(self, *, changed_only: bool = False) -> None:
        """Take the files as they are now; a broken one keeps the certificate that is in use.

        Args:
            changed_only: return at once if no file has changed.
        """
        state = self._state()
        if changed_only and state == self._seen:
            return
        self._seen = state
        try:
            self.data.reload()
            self.admin.reload()
        except InvalidRequestError as error:
            self._success.set(0)
            log.warning(Event.TLS_RELOAD_FAILED, error=error)
            return
        self._succeeded()
        log.info(Event.TLS_RELOADED)

    async def watch(self) -> None:
        """Look for changed files until cancelled."""
        while True:
            await anyio.sleep(self._section.check_interval)
            self.reload(changed_only=True)

    def _succeeded(self) -> None:
        self._success.set(1)
        assert self._section.cert_file is not None
        try:
            self._expiry.set(expiry_s(Path(self._section.cert_file).read_text(errors="replace")))
        except (OSError, ValueError) as error:  # OpenSSL takes it; only its expiry is not known
            log.warning(Event.TLS_RELOAD_FAILED, error=f"{self._section.cert_file}: {error}")

    def _state(self) -> list[tuple[int, int, int] | None]:
        section = self._section
        return list(_states(each for each in (section.cert_file, section.key_file, section.client_ca_file) if each))


def _states(files: Iterable[str]) -> Iterable[tuple[int, int, int] | None]:
    for file in files:
        try:
            found = Path(file).stat()
        except OSError:
            yield None
        else:
            yield found.st_ino, found.st_mtime_ns, found.st_size
