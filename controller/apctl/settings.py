# SPDX-License-Identifier: Apache-2.0
"""Controller and token of a command: from options, then environment, then the file of `apctl login`."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from ..client import Client


class UsageError(Exception):
    """Bad input; the text is one line that names it and the fix."""


@dataclass(frozen=True)
class ControllerAccess:
    """A controller."""

    url: str
    token: str
    ca: str | None = None

    def client(self) -> Client:
        """Return a connection; raises `UsageError`."""
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"{self.url}: not a URL as https://controller:8443")
        try:
            return Client(self.url, self.token, Path(self.ca) if self.ca else None)
        except OSError as error:
            raise UsageError(f"{self.ca}: {(error.strerror or str(error)).lower()}") from None


def kept_file() -> Path:
    """Return the path of the file in which `apctl login` keeps URL and token."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "apctl.json"


def keep(access: ControllerAccess) -> Path:
    """Keep it, readable by its owner alone."""
    path = kept_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(descriptor, 0o600)
        json.dump(asdict(access), file)
    return path


def find(url: str | None = None, token: str | None = None, ca: str | None = None) -> ControllerAccess:
    """Return the controller to connect to; raises `UsageError`."""
    kept: dict[str, str | None] = {}
    try:
        kept = json.loads(kept_file().read_text())
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        raise UsageError(f"{kept_file()}: not readable: `apctl login` rewrites it") from None
    url = url or os.environ.get("APCTL_URL") or kept.get("url")
    # A token is only for the controller that it was kept for.
    token = token or os.environ.get("APCTL_TOKEN") or (kept.get("token") if url == kept.get("url") else None)
    if not url or not token:
        missing = "a URL" if not url else "a token"
        raise UsageError(f"{missing} is needed: `apctl login URL --token-file FILE`, or APCTL_URL and APCTL_TOKEN")
    return ControllerAccess(url, token, ca or os.environ.get("APCTL_CA") or kept.get("ca"))
