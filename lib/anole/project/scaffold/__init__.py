"""Write the files of a new project: models.yaml, .gitignore, profiles and a Snakefile for the installed workflow."""

from __future__ import annotations

import os
from collections.abc import Iterable
from os.path import lexists
from pathlib import Path

from anole.errors import ProjectError
from anole.files import read_bytes, write_atomically
from anole.workflow import HOME

_TEMPLATES = Path(__file__).parent


def make_project(folder: Path, demo: bool) -> list[Path]:
    """Write the files of a new project and return their paths.

    Args:
        folder: the destination, which may be missing, or contain other files.
        demo: whether to write the models.yaml of the demo, which takes a minute or two.

    Raises:
        ProjectError: one of the files exists, or a file is in place of a folder; nothing was written.
        OSError: a file cannot be written.
    """
    profiles = sorted(path for path in HOME.glob("profiles/*/*") if path.suffix in (".yaml", ".py"))
    sources = {
        folder / "models.yaml": _TEMPLATES / ("demo.yaml" if demo else "models.yaml"),
        folder / "Snakefile": _TEMPLATES / "Snakefile",
        folder / ".gitignore": _TEMPLATES / "gitignore",
        **{folder / path.relative_to(HOME): path for path in profiles},
    }
    if existing_files := _existing_files(sources):
        names = ", ".join(str(path) for path in existing_files)
        raise ProjectError(f"{names}: already exists; nothing was written; give another folder")
    for path, source in sources.items():
        write_atomically(path, read_bytes(source))
        if os.access(source, os.X_OK):
            path.chmod(path.stat().st_mode | 0o111)
    return list(sources)


def _existing_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files that exist, and the files in place of a parent folder."""
    files = {path: lexists(path) for path in paths}
    parents = {parent: lexists(parent) and not parent.is_dir() for path in files for parent in path.parents}
    return [path for path, exists in {**files, **parents}.items() if exists]
