# SPDX-License-Identifier: Apache-2.0
"""Credentials of a fleet: `python -m accesspoint.controller.fleet.credentials init DIRECTORY` makes all that a new
engine needs.

NATS identifies clients by Ed25519 keys, and has the permissions of each in a token (JWT) that the account's key has
signed, so a new agent needs no change of the server: the service, which holds that key, signs its permissions. A client
proves its own key, which never leaves its machine. The files are those of NATS' own tools.
"""

import base64
import binascii
import hashlib
import ipaddress
import json
import os
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from ..config import ConfigError

SEED = 18 << 3
KINDS = {"O": 14 << 3, "A": 0, "U": 20 << 3}
"""Kinds of keys: operator, account, user; their texts begin with these letters."""

VALID_DAYS = 30
"""Days for which an agent's token is valid; it asks for the next one in time. Without one it runs alone."""
CERTIFICATE_DAYS = 3650
STORE = "2GB"
"""Disk space that the engine may use."""


def _text(data: bytes) -> str:
    """Encode a key as NATS does: base32 with a checksum."""
    whole = data + binascii.crc_hqx(data, 0).to_bytes(2, "little")
    return base64.b32encode(whole).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    """Decode a key's text; raises ValueError."""
    whole = base64.b32decode(text + "=" * (-len(text) % 8))
    if binascii.crc_hqx(whole[:-2], 0).to_bytes(2, "little") != whole[-2:]:
        raise ValueError("its checksum is wrong")
    return whole[:-2]


def is_user(key: str) -> bool:
    """Return True for the public key of a user."""
    try:
        return len(key) == 56 and _bytes(key)[0] == KINDS["U"]
    except ValueError:
        return False


class Key:
    """A key pair of NATS, new or from its seed. Raises ValueError for a bad seed."""

    def __init__(self, kind: str, seed: str | None = None) -> None:
        if seed is None:
            self._private = Ed25519PrivateKey.generate()
        else:
            raw = _bytes(seed)
            if raw[:2] != self._prefix(kind) or len(raw) != 34:
                raise ValueError("it is a key of another kind")
            self._private = Ed25519PrivateKey.from_private_bytes(raw[2:])
        self._kind = kind

    @staticmethod
    def _prefix(kind: str) -> bytes:
        return bytes([SEED | KINDS[kind] >> 5, (KINDS[kind] & 31) << 3])

    @property
    def seed(self) -> str:
        """Return the seed, which must be kept secret."""
        return _text(self._prefix(self._kind) + self._private.private_bytes_raw())

    @property
    def public(self) -> str:
        """Return the public key."""
        return _text(bytes([KINDS[self._kind]]) + self._private.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """Sign data, as a proof of the key."""
        return self._private.sign(data)


def token(issuer: Key, subject: str, name: str, claims: dict[str, Any], days: float | None = None) -> str:
    """Make a JWT of NATS."""
    body = {"iss": issuer.public, "sub": subject, "name": name, "iat": int(time.time()), "nats": claims}
    if days is not None:
        body["exp"] = int(time.time() + days * 86_400)
    body["jti"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    parts = [{"typ": "JWT", "alg": "ed25519-nkey"}, body]
    signed = ".".join(_url(json.dumps(part, separators=(",", ":")).encode()) for part in parts)
    return f"{signed}.{_url(issuer.sign(signed.encode()))}"


def _url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def claims_of(jwt: str) -> dict[str, Any]:
    """Return a token's claims, without a check of its signature, which is the server's part. Raises ValueError."""
    body = jwt.split(".")[1] if jwt.count(".") == 2 else ""
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)) or b"0")
    if not isinstance(claims, dict):
        raise ValueError("it is no token")
    return claims


def user(account: Key, subject: str, name: str, publish: list[str], subscribe: list[str], days: float | None) -> str:
    """Make the token of a client with these permissions."""
    claims = {
        "type": "user",
        "version": 2,
        "pub": {"allow": publish},
        "sub": {"allow": subscribe},
        # Permission to answer requests.
        "resp": {"max": 1, "ttl": 60_000_000_000},
        "subs": -1,
        "data": -1,
        "payload": -1,
    }
    return token(account, subject, name, claims, days)


@dataclass(frozen=True)
class Credentials:
    """A key and its token: a `.creds` file of NATS."""

    key: Key
    jwt: str

    @classmethod
    def load(cls, path: Path) -> "Credentials":
        """Load a `.creds` file; raises `ConfigError`."""
        lines = _read(path).split()
        found = {len(line) > 100: line for line in lines if "." in line or line.startswith("SU")}
        try:
            return cls(Key("U", found[False]), found[True])
        except (KeyError, ValueError):
            raise ConfigError(
                f"{path}: no credentials of NATS: `accesspoint.controller.fleet.credentials init` makes some"
            ) from None

    def text(self) -> str:
        """Return the contents of the file."""
        return (
            f"-----BEGIN NATS USER JWT-----\n{self.jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self.key.seed}\n------END USER NKEY SEED------\n"
        )


def load_key(kind: str, path: Path) -> Key:
    """Load a key from its file; raises `ConfigError`."""
    try:
        return Key(kind, _read(path).strip())
    except ValueError as error:
        raise ConfigError(f"{path}: no key: {error}") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or 'not text'}") from None


def write(path: Path, text: str | bytes, mode: int = 0o600) -> None:
    """Write a file atomically: it is complete or missing, also after a power cut."""
    beside = path.with_name(path.name + ".new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def key_of(name: str) -> str:
    """Return an access point's name as one word of NATS' subjects, where a dot separates words."""
    return name.replace(".", "=")


def agent(account: Key, public: str, name: str) -> str:
    """Make the token of an access point's agent: for its own subjects, and no others."""
    key = key_of(name)
    publish = [
        f"ap.{key}.seen",
        f"ap.{key}.history",
        "fleet.announce",
        f"$KV.lease.{key}",
        *(f"$JS.API.DIRECT.GET.KV_{bucket}.$KV.{bucket}.{key}" for bucket in ("desired", "lease")),
    ]
    return user(
        account, public, name, publish, [f"_INBOX.{public}.>", f"ap.{key}.do", f"$KV.desired.{key}"], VALID_DAYS
    )


def init(directory: Path, hosts: list[str], listen: str) -> None:
    """Make keys, credentials, certificates and `nats.conf` of a new engine; raises `ConfigError` where there is one."""
    configuration = directory / "nats.conf"
    if configuration.exists():
        raise ConfigError(f"{configuration}: exists already: every agent would have to be adopted again")
    directory.mkdir(parents=True, exist_ok=True)
    operator, account, system = Key("O"), Key("A"), Key("A")
    unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    stores = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer", "max_ack_pending"), -1)
    of = {"type": "account", "version": 2, "default_permissions": {"pub": {}, "sub": {}}}
    tokens = {
        account: token(operator, account.public, "fleet", of | {"limits": unlimited | stores | {"wildcards": True}}),
        system: token(operator, system.public, "system", of | {"limits": unlimited | {"wildcards": True}}),
    }
    service, enrol = Key("U"), Key("U")
    files = {
        "operator.seed": operator.seed,
        "account.seed": account.seed,
        "service.creds": Credentials(service, user(account, service.public, "service", [">"], [">"], None)).text(),
        "enrol.creds": Credentials(
            enrol, user(account, enrol.public, "enrol", ["fleet.announce"], [f"_INBOX.{enrol.public}.>"], None)
        ).text(),
        **_certificates(hosts),
    }
    for name, text in files.items():
        write(directory / name, text)
    whole = directory.resolve()
    preload = "\n".join(f"  {key.public}: {jwt}" for key, jwt in tokens.items())
    claims = {"type": "operator", "version": 2, "system_account": system.public}
    write(
        configuration,
        f"""listen: {json.dumps(listen)}
server_name: engine
max_payload: 1MB
tls {{
  cert_file: {json.dumps(str(whole / "server.pem"))}
  key_file: {json.dumps(str(whole / "server.key"))}
}}
jetstream {{
  store_dir: {json.dumps(str(whole / "jetstream"))}
  max_memory_store: 64MB
  max_file_store: {STORE}
}}
operator: {token(operator, operator.public, "fleet", claims)}
system_account: {system.public}
resolver: MEMORY
resolver_preload: {{
{preload}
}}
""",
    )


def _certificates(hosts: list[str]) -> dict[str, str]:
    """Make an authority of the fleet's own, and the server's certificate for these names and addresses."""
    now = datetime.now(UTC)
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fleet")])

    def certificate(name: x509.Name, key: ec.EllipticCurvePrivateKey, *more: x509.ExtensionType) -> str:
        builder = x509.CertificateBuilder(issuer, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1))
        builder = builder.not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
        for extension in more:
            critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
            builder = builder.add_extension(extension, critical)
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    names = x509.SubjectAlternativeName([_name(host) for host in hosts])
    own = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    # Python 3.13 accepts no authority without this extension (RFC 5280, 4.2.1.3).
    signs = x509.KeyUsage(
        key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return {
        "ca.pem": certificate(issuer, authority, x509.BasicConstraints(ca=True, path_length=0), signs, own),
        "ca.key": _private(authority),
        "server.pem": certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])]), server, names, by),
        "server.key": _private(server),
    }


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(*form).decode()


application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@application.callback()
def _commands() -> None:
    """Credentials of a fleet's engine."""


@application.command("init")
def _init(
    directory: Annotated[Path, typer.Argument(help="A new folder; keep it secret, and a copy of it elsewhere.")],
    host: Annotated[list[str], typer.Option(help="A name or address that agents and replicas reach it by.")],
    listen: Annotated[str, typer.Option(help="Where it listens.")] = "0.0.0.0:4222",
) -> None:
    """Make keys, certificates and nats.conf: then start `nats-server -c DIRECTORY/nats.conf`."""
    init(directory, host, listen)
    print(f"start it with nats-server -c {directory}/nats.conf")
    print(f"a replica needs account.seed, ca.pem and service.creds of {directory}, an agent ca.pem and enrol.creds")


def main() -> int:
    """Run; an error is one line and code 2."""
    try:
        application()
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
