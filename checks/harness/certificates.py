# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made by openssl."""

import subprocess
from pathlib import Path


class Authority:
    """Certificates from a new authority."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.ca = directory / "ca.pem"
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        self._openssl("req", "-x509", *key, *usage, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)

    def certificate(self, name: str) -> tuple[Path, Path]:
        """Certificate and key for a name on loopback."""
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        self._openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (self.directory / "names").write_text(
            f"subjectAltName=DNS:{name},IP:127.0.0.1\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        )
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")
        return self.directory / f"{name}.pem", self.directory / f"{name}.key"
