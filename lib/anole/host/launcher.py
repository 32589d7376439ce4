"""How to start Anole again: with this interpreter, this library and the caller's packages, in any working directory."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from shlex import quote

LIBRARY = Path(__file__).parents[2]
"""The folder that holds the package."""


def callers_packages() -> list[str]:
    """Return the folders of the caller's ``PYTHONPATH``, which may hold factories and kinds of targets.

    Relative ones are resolved where Python started; Snakemake has changed to the project's folder since.
    """
    entries = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return [_where_python_started(entry) for entry in entries]


def launcher() -> str:
    """Return the shell code that starts Anole.

    Its variables hold for this one command, so that a workflow that has rules of its own keeps its environment.
    """
    packages = list(dict.fromkeys([*_library(), *callers_packages()]))
    path = f"PYTHONPATH={quote(os.pathsep.join(packages))} " if packages else ""
    return f'PATH={quote(str(Path(sys.executable).parent))}:"$PATH" {path}{quote(sys.executable)} -m anole'


def _where_python_started(entry: str) -> str:
    """Python has put the absolute path of each entry into `sys.path`."""
    starts = (os.getcwd(), os.path.realpath(os.environ.get("PWD", "")))
    paths = [os.path.abspath(os.path.join(start, entry)) for start in starts]
    return next((path for path in paths if path in sys.path), paths[0])


def _library() -> list[str]:
    """An installed library needs no mention, and would come before the standard library if it had one."""
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return [] if str(LIBRARY) in installed else [str(LIBRARY)]
