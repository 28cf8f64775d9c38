# SPDX-License-Identifier: Apache-2.0
"""A bill of materials in CycloneDX: every crate that is in the programs, every Python package that the wheels ask for."""

import json
import os
import subprocess
import tomllib
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.validation.json import JsonStrictValidator
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
LICENSE = "Apache-2.0"


def write(path: Path, version: str) -> None:
    """The document, checked against CycloneDX's schema."""
    root = component("access-point", version, ComponentType.APPLICATION, LICENSE)
    crates = {folder: cargo(ROOT / folder / "Cargo.toml") for folder in ("switch/cli", "hosts")}
    packages = python(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    parts = {str(part.bom_ref.value): part for found in (*crates.values(), packages) for part in found}
    bom = Bom(components=parts.values())
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join([version, *sorted(parts)]))
    bom.register_dependency(root, parts.values())
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"error: the SBOM is no CycloneDX: {error}")
    path.write_text(text + "\n")


def component(name: str, version: str, kind: ComponentType, license_: str | None, registry: str = "") -> Component:
    url = PackageURL(registry, None, name, version) if registry else None
    licenses = [LicenseFactory().make_from_string(license_)] if license_ else []
    return Component(
        name=name, version=version, type=kind, licenses=licenses, purl=url, bom_ref=str(url or f"{name}@{version}")
    )


def cargo(manifest: Path) -> Iterable[Component]:
    """The crates of a program, without those that only its build or its tests need."""
    words = ["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]
    said = subprocess.run(["cargo", *words, "--manifest-path", manifest], capture_output=True, text=True, check=True)
    document: dict[str, Any] = json.loads(said.stdout)
    nodes = {node["id"]: node for node in document["resolve"]["nodes"]}
    packages = {package["id"]: package for package in document["packages"]}
    waiting, seen = [document["resolve"]["root"]], set[str]()
    while waiting:
        if (here := waiting.pop()) not in seen:
            seen.add(here)
            waiting += [
                there["pkg"]
                for there in nodes[here]["deps"]
                if any(kind["kind"] is None for kind in there["dep_kinds"])
            ]
    for package in sorted((packages[one] for one in seen), key=lambda one: (one["name"], one["version"])):
        # Older manifests say `MIT/Apache-2.0` for `MIT OR Apache-2.0`.
        license_ = (package["license"] or "").replace("/", " OR ")
        yield component(package["name"], package["version"], ComponentType.LIBRARY, license_, "cargo")


def python(wanted: list[str]) -> Iterable[Component]:
    """Components for these requirements and for those of each of them, in the versions that are installed and
    tested."""
    waiting: list[tuple[Requirement, tuple[str, ...]]] = [(Requirement(word), ()) for word in wanted]
    seen = dict[str, Component]()
    done = set[tuple[str, tuple[str, ...]]]()
    while waiting:
        requirement, extras = waiting.pop()
        here = (requirement.name.lower(), tuple(sorted(requirement.extras)))
        if here in done or not applies(requirement, extras):
            continue
        done.add(here)
        try:
            found = distribution(requirement.name)
        except PackageNotFoundError:
            raise SystemExit(f"error: {requirement.name} is not installed: `make develop`") from None
        said = found.metadata
        license_ = str(said.json.get("license_expression") or "")
        seen[here[0]] = component(said["Name"], found.version, ComponentType.LIBRARY, license_, "pypi")
        waiting += [(Requirement(word), here[1]) for word in found.requires or []]
    return [seen[name] for name in sorted(seen)]


def applies(requirement: Requirement, extras: tuple[str, ...]) -> bool:
    """Return whether a requirement applies to this system. extras: those of the package that has it."""
    return not requirement.marker or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))
