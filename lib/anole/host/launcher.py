"""The shell command that starts Anole with this interpreter, this library and the caller's packages, in any folder."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from shlex import quote

LIBRARY = Path(__file__).parents[2]
"""The folder that holds the package."""


def callers_packages() -> list[str]:
    """Return the folders of the caller's ``PYTHONPATH``, which may contain model factories and target plugins.

    Relative folders are resolved where Python started, because Snakemake has since changed to the project's folder.
    """
    entries = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return [_resolve_entry(entry) for entry in entries]


def launcher() -> str:
    """Return the shell code that starts Anole.

    The code sets variables for this command only, so the environment of a workflow's other rules does not change.
    """
    packages = list(dict.fromkeys([*_library_folders(), *callers_packages()]))
    path = f"PYTHONPATH={quote(os.pathsep.join(packages))} " if packages else ""
    return f'PATH={quote(str(Path(sys.executable).parent))}:"$PATH" {path}{quote(sys.executable)} -m anole'


def _resolve_entry(entry: str) -> str:
    """Resolve an entry of ``PYTHONPATH``; Python has put its absolute path into `sys.path`."""
    folders = (os.getcwd(), os.path.realpath(os.environ.get("PWD", "")))
    paths = [os.path.abspath(os.path.join(folder, entry)) for folder in folders]
    return next((path for path in paths if path in sys.path), paths[0])


def _library_folders() -> list[str]:
    """Return the library's folder, unless it is a site folder, which would precede the standard library."""
    site_folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return [] if str(LIBRARY) in site_folders else [str(LIBRARY)]
