# SPDX-License-Identifier: Apache-2.0
"""`make dist`: wheels, the sdist, Debian packages, their checksums and an SBOM, into out/dist.

The same sources, compilers and Python make the same bytes: every time is SOURCE_DATE_EPOCH (the commit's, where it is
not given), no path of this machine is in a program, and what is packed is packed in order. `--compare DIR` says whether
it is so: it names each file that differs from that of an earlier run there.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tools.dist import debian, sbom, wheels

ROOT = Path(__file__).resolve().parents[2]
SUMS = "SHA256SUMS"
EVERYTHING = ("wheels", "debian", "sbom")


def epoch() -> str:
    """Seconds since 1970 that everything is dated with."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    said = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    if said.returncode:
        raise SystemExit("error: this is no checkout of git: say the date with SOURCE_DATE_EPOCH=seconds")
    return said.stdout.strip()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differing(here: Path, there: Path) -> list[str]:
    """Files that are not the same in both folders."""
    names = {path.name for folder in (here, there) for path in folder.iterdir() if path.is_file()}
    return sorted(
        name
        for name in names
        if not all((folder / name).is_file() for folder in (here, there)) or digest(here / name) != digest(there / name)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="wheels, sdist, Debian packages, checksums and an SBOM")
    parser.add_argument("--out", type=Path, default=ROOT / "out/dist", metavar="DIR", help="default: out/dist")
    parser.add_argument("--only", choices=EVERYTHING, action="append", help="repeated; default: all")
    parser.add_argument("--compare", type=Path, metavar="DIR", help="an earlier run's folder: what differs is named")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    os.umask(0o022)
    os.environ |= {"SOURCE_DATE_EPOCH": epoch(), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    parts = options.only or EVERYTHING
    try:
        with tempfile.TemporaryDirectory() as scratch:
            programs = wheels.programs(Path(scratch)) if {"wheels", "debian"} & set(parts) else {}
            if "wheels" in parts:
                for made in Path(scratch).glob("*.whl"):
                    shutil.copy(made, out)
                wheels.build(out, version)
            if "debian" in parts:
                debian.build(out, version, programs)
        if "sbom" in parts:
            sbom.write(out / f"access-point-{version}.cdx.json", version)
    except subprocess.CalledProcessError as error:
        print(f"error: `{' '.join(map(str, error.cmd))}` ended with {error.returncode}", file=sys.stderr)
        return 2
    files = sorted(path for path in out.iterdir() if path.is_file())
    (out / SUMS).write_text("".join(f"{digest(path)}  {path.name}\n" for path in files))
    for path in [*files, out / SUMS]:
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path.relative_to(ROOT) if ROOT in path.parents else path}")
    if options.compare:
        different = differing(out, options.compare.resolve())
        print(f"differs: {', '.join(different)}" if different else f"the same, byte for byte, as {options.compare}")
        return int(bool(different))
    return 0


if __name__ == "__main__":
    sys.exit(main())
