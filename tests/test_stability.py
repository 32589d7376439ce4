"""The page on stability lists exactly what the code offers: a removal must also change the promise."""

import inspect
import re
import sqlite3
from dataclasses import fields
from importlib.metadata import entry_points
from pathlib import Path

from click import Context

import anole
from anole import bench
from anole.__main__ import main
from anole.documents.build import Build
from anole.merge.database import merge_files

HOME = Path(__file__).parents[1]
PAGE = (HOME / "docs/stability.md").read_text()


def listed(title: str) -> set[str]:
    """Return the names in code spans of the paragraph with a title."""
    (paragraph,) = re.findall(rf"^\*\*{re.escape(title)}\*\* (.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([\w.-]+)`", paragraph))


def test_python() -> None:
    assert {backend.name for backend in entry_points(group="torch_dynamo_backends")} >= {"anole"}
    members = re.findall(r"(?:def |self\.)([a-z]\w*)", inspect.getsource(anole.Compiled))
    assert listed("Python.") == {*anole.__all__, *bench.__all__, *members, "anole", "anole.bench"}


def test_command_line() -> None:
    assert listed("Command line.") == set(main.list_commands(Context(main)))


def test_database(tmp_path: Path) -> None:
    merge_files(tmp_path / "shards", [], [], [], tmp_path / "tuning.sqlite")
    with sqlite3.connect(tmp_path / "tuning.sqlite") as database:
        rows = database.execute("select name from sqlite_master where type in ('table', 'view')").fetchall()
    assert listed("Database.") == {name for (name,) in rows if not name.startswith("sqlite_")}


def test_builds() -> None:
    stored = {field.name for field in fields(Build)} - {"sizes"}
    assert listed("Builds.") == {*stored, "build.json", "load.py", "Model"}


def test_c_libraries() -> None:
    header = (HOME / "lib/anole/export/c/network.h.in").read_text()
    declared = re.findall(r"^(?:const )?\w+\*? (network_\w+)\(", header, re.MULTILINE)
    assert listed("C libraries.") == set(declared)
