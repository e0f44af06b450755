"""Certificates for the tests of the extender's TLS, as an issuer such as cert-manager makes and renews them."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAMES = x509.SubjectAlternativeName(
    [x509.DNSName("localhost"), x509.DNSName("covey-scheduler-extender"), x509.IPAddress(IPv4Address("127.0.0.1"))]
)


class Authority:
    """One that signs certificates for servers and their callers."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        draft = _draft(self._name, self._name, self._key, days=30)
        draft = draft.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = draft.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """The authority's own certificate."""
        return self._certificate.public_bytes(Encoding.PEM)

    def issue(self, name: str, *, days: float = 1.0) -> tuple[bytes, bytes]:
        """Certificate and key in PEM, good for a server on loopback and for a caller; it expires after so many days."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        draft = _draft(_named(name), self._name, key, days=days).add_extension(NAMES, critical=False)
        made = draft.add_extension(usage, critical=False).sign(self._key, hashes.SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return made.public_bytes(Encoding.PEM), private


class Mounted:
    """A Secret as the kubelet mounts it: the files hang on a link, which is swapped as a whole."""

    def __init__(self, directory: Path, authority: Authority, name: str) -> None:
        self.directory = directory
        self.name = name
        self._version = 0
        directory.mkdir(parents=True)
        self.renew(authority)
        for file in ("tls.crt", "tls.key", "ca.crt"):
            (directory / file).symlink_to(f"..data/{file}")

    @property
    def certificate(self) -> Path:
        return self.directory / "tls.crt"

    @property
    def key(self) -> Path:
        return self.directory / "tls.key"

    @property
    def authority(self) -> Path:
        return self.directory / "ca.crt"

    def renew(self, authority: Authority, *, trusted: bytes | None = None, days: float = 1.0) -> None:
        """Swap in a new certificate, and the authorities to trust; the old files are gone."""
        certificate, key = authority.issue(self.name, days=days)
        self.swap({"tls.crt": certificate, "tls.key": key, "ca.crt": trusted or authority.pem})

    def swap(self, files: dict[str, bytes]) -> None:
        """Swap in files."""
        old = self.directory / f"..{self._version}"
        self._version += 1
        new = self.directory / f"..{self._version}"
        new.mkdir()
        for file, content in files.items():
            (new / file).write_bytes(content)
        link = self.directory / "..new"
        link.symlink_to(new.name)
        os.replace(link, self.directory / "..data")  # noqa: PTH105 - of a link, not of what it leads to
        if old.exists():
            for file in old.iterdir():
                file.unlink()
            old.rmdir()

    def client_context(self) -> ssl.SSLContext:
        """What a caller with these files uses."""
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.certificate, self.key)
        return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: float
) -> x509.CertificateBuilder:
    until = datetime.now(UTC) + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(datetime.now(UTC), until) - timedelta(hours=1))
        .not_valid_after(until)
    )
