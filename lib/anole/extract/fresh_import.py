"""Import a project's modules from their current sources, bypassing caches; installed packages are imported as usual."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

_INSTALL_DIRS = (os.path.join(sys.prefix, "lib"), *map(sysconfig.get_path, ("stdlib", "platlib", "purelib")))
_INSTALLED_PREFIXES = tuple(f"{folder}{os.sep}" for folder in _INSTALL_DIRS)
"""Path prefixes of installed modules."""


def import_fresh(name: str, project_files: Iterable[Path]) -> ModuleType:
    """Import a module, its package and the project's files that it imports from their current sources.

    Args:
        name: the module's dotted name.
        project_files: the project's files that the module imports, relative to the import path.
    """
    names = {_module_name(file) for file in project_files}
    for loaded_name, module in list(sys.modules.items()):
        is_stale = loaded_name in names or loaded_name.partition(".")[0] == name.partition(".")[0]
        file = getattr(module, "__file__", None)
        if is_stale and file is not None and not file.startswith(_INSTALLED_PREFIXES):
            del sys.modules[loaded_name]
    importlib.invalidate_caches()
    return importlib.import_module(name)


@contextmanager
def prefer_sources(folder: Path) -> Iterator[None]:
    """Put a folder first on the import path, and compile modules that are not installed from their sources."""
    entry, finder = str(folder), _Finder()
    sys.path.insert(0, entry)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path.remove(entry)


class _Finder:
    """A finder that delegates to the other finders, and replaces the loader of modules that are not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        finders = (finder for finder in list(sys.meta_path) if not isinstance(finder, _Finder))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)
        loader = None if spec is None else spec.loader
        if spec is not None and type(loader) is SourceFileLoader and not loader.path.startswith(_INSTALLED_PREFIXES):
            spec.loader = _SourceLoader(name, loader.path)
        return spec


class _SourceLoader(SourceFileLoader):
    """A loader that ignores cached byte code, which goes stale if a source changes twice within a second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
