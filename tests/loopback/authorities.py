"""Certificate authorities of a test, and what they sign. Nothing outside of the test trusts them."""

import ssl
import subprocess
from pathlib import Path

import trustme


class Authority:
    """Signs certificates for names and addresses; `file` holds its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._authority = trustme.CA(organization_name=name)
        self.file = folder / f"{name}.pem"
        self._authority.cert_pem.write_to_path(self.file)

    def serves(self, *names: str) -> ssl.SSLContext:
        """For a server that goes by these names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(*names).configure_cert(context)
        return context

    def subject_hash(self) -> str:
        """The name under which OpenSSL looks for it in a folder of certificates."""
        found = subprocess.run(
            ["openssl", "x509", "-noout", "-hash", "-in", str(self.file)], capture_output=True, check=True, text=True
        )
        return found.stdout.strip()

    def trusts(self) -> ssl.SSLContext:
        """For a client that trusts this authority and no other."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._authority.configure_trust(context)
        return context
