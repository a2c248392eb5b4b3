"""An authority that signs certificates for tests."""

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

START = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
END = datetime.datetime(2060, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """Signs certificates; ``ca_file`` is its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None), END)
        self.ca_file = folder / f"{name}.pem"
        self.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, until: datetime.datetime = END) -> tuple[Path, Path]:
        """Write a certificate and its key, or replace them; return their files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key, x509.BasicConstraints(ca=False, path_length=None), until)
        files = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files

    def client(self, files: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if files is not None:
            context.load_cert_chain(*files)
        return context

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        constraints: x509.BasicConstraints,
        until: datetime.datetime,
    ) -> x509.Certificate:
        names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(START)
            .not_valid_after(until)
            .add_extension(constraints, critical=True)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )
