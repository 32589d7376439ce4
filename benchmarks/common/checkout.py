"""Make the target kinds of a checkout that is not installed discoverable, as entry points."""

from __future__ import annotations

import os
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]


def declare_targets(folder: Path) -> None:
    """Unless Anole is installed, write its entry points into a folder, for this process and its children."""
    try:
        distribution("anole")
    except PackageNotFoundError:
        project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
        dist_info = folder / f"anole-{project['version']}.dist-info"
        dist_info.mkdir(parents=True, exist_ok=True)
        (dist_info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: anole\nVersion: {project['version']}\n")
        targets = "\n".join(f"{name} = {value}" for name, value in project["entry-points"]["anole.targets"].items())
        (dist_info / "entry_points.txt").write_text(f"[anole.targets]\n{targets}\n")
        sys.path.append(str(folder))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))
