"""The pins agree: requirements.lock matches pyproject.toml, and environment.yml adds no versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
PIN = re.compile(
    r"^([A-Za-z0-9._-]+)==([^\s;]+)(?: ; (.+?))? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M
)


def pins() -> dict[str, Version]:
    """Return the packages that the lock installs for this Python."""
    found: dict[str, Version] = {}
    for name, version, marker, _ in PIN.findall(LOCK):
        if not marker or Marker(marker).evaluate():
            assert name not in found, f"{name} is pinned twice"
            found[canonicalize_name(name)] = Version(version)
    return found


REQUIREMENTS = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]


@pytest.mark.parametrize("text", REQUIREMENTS)
def test_every_direct_dependency_is_pinned_as_required(text: str) -> None:
    requirement = Requirement(text)
    version = pins().get(canonicalize_name(requirement.name))
    assert version is not None, f"{requirement.name} is not in requirements.lock; run `make lock`"
    assert requirement.specifier.contains(version, prereleases=True), f"{text} is locked at {version}"


def test_optional_dependencies_are_tested() -> None:
    extras = dict(PROJECT["project"]["optional-dependencies"])
    assert {"slurm", "kubernetes"} <= set(extras)
    assert all("==" in text for text in extras.pop("bench")), "its packages are tested outside of the lock"
    assert {text for texts in extras.values() for text in texts} <= set(PROJECT["dependency-groups"]["dev"])


def test_every_pin_has_a_hash_and_no_address() -> None:
    started = re.findall(r"^[A-Za-z0-9._-]+==", LOCK, re.M)
    assert len(PIN.findall(LOCK)) == len(started) > len(REQUIREMENTS)
    assert "://" not in re.sub(r"^ *#.*$", "", LOCK, flags=re.M)


def test_the_lock_has_no_unneeded_direct_dependencies() -> None:
    blocks = re.split(r"^(?=[A-Za-z0-9._-]+==)", LOCK, flags=re.M)[1:]
    direct = {canonicalize_name(block.partition("==")[0]) for block in blocks if "anole (pyproject.toml" in block}
    assert direct == {canonicalize_name(Requirement(text).name) for text in REQUIREMENTS}


def test_conda_takes_its_versions_from_the_lock() -> None:
    plain = [entry for entry in ENVIRONMENT["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in ENVIRONMENT["dependencies"] if isinstance(entry, dict)]
    names = [re.split(r"[=<> ]", entry)[0] for entry in plain]
    assert pip == ["--requirement requirements.lock"]
    assert len(set(names)) == len(names)
    assert not {canonicalize_name(name) for name in names} & set(pins()) - {"pip"}


def test_the_same_pythons_are_supported_everywhere() -> None:
    allowed = SpecifierSet(PROJECT["project"]["requires-python"])
    versions = [version for version in (f"3.{minor}" for minor in range(30)) if version in allowed]
    prefix = "Programming Language :: Python :: "
    classified = [text.removeprefix(prefix) for text in PROJECT["project"]["classifiers"] if text.startswith(prefix)]
    (tried,) = re.findall(r'^supported="(.+)"$', (ROOT / ".ci/environment").read_text(), re.M)
    assert classified == tried.split() == versions
    for page in ("README.md", "docs/install.md", "docs/contributing.md"):
        assert f"Python {versions[0]} to {versions[-1]}" in (ROOT / page).read_text(), page
    (image,) = re.findall(r"^FROM \S+/python:([\d.]+)-", (ROOT / "Containerfile").read_text(), re.M)
    assert image in versions


def test_conda_allows_only_supported_pythons() -> None:
    (python,) = [str(entry) for entry in ENVIRONMENT["dependencies"] if str(entry).startswith("python")]
    conda, allowed = Requirement(python).specifier, SpecifierSet(PROJECT["project"]["requires-python"])
    chosen = [version for version in (f"3.{minor}" for minor in range(30)) if version in conda]
    assert chosen and all(version in allowed for version in chosen)
