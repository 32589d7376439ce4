"""Importing a project's modules from their sources."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from anole.extract.fresh_import import import_fresh, prefer_sources


def test_byte_code_is_used_only_for_installed_modules(project: Path) -> None:
    (project / "mine.py").write_text("value = 1\n")
    with prefer_sources(project):
        assert import_fresh("mine", []).value == 1
        own, installed = importlib.util.find_spec("mine"), importlib.util.find_spec("colorsys")
    assert own is not None and installed is not None
    assert isinstance(own.loader, SourceFileLoader) and type(own.loader) is not SourceFileLoader
    assert type(installed.loader) is SourceFileLoader
    assert not (project / "__pycache__").exists()


def test_a_package_of_the_project_is_imported_with_its_parts(project: Path) -> None:
    (project / "parts").mkdir()
    (project / "parts/__init__.py").write_text("from parts.inner import value\n")
    for value in (1, 2):
        (project / "parts/inner.py").write_text(f"value = {value}\n")
        with prefer_sources(project):
            assert import_fresh("parts", [Path("parts/__init__.py"), Path("parts/inner.py")]).value == value


def test_the_import_system_is_restored(project: Path) -> None:
    before = list(sys.path), list(sys.meta_path)
    with pytest.raises(ModuleNotFoundError), prefer_sources(project):
        import_fresh("nowhere_to_be_found", [])
    assert (sys.path, sys.meta_path) == before


def test_a_factory_may_load_a_model_itself(tmp_path: Path) -> None:
    (tmp_path / "nested_module.py").write_text("value = 1\n")
    with prefer_sources(tmp_path), prefer_sources(tmp_path):
        assert import_fresh("nested_module", []).value == 1
    del sys.modules["nested_module"]
