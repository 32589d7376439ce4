"""Imports a project's modules from their sources as they are now; installed packages are imported as always."""

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

_PLACES = (os.path.join(sys.prefix, "lib"), *map(sysconfig.get_path, ("stdlib", "platlib", "purelib")))
_INSTALLED = tuple(f"{place}{os.sep}" for place in _PLACES)
"""How the paths of installed modules begin."""


def import_fresh(name: str, own: Iterable[Path]) -> ModuleType:
    """Import a module; neither it nor what belongs to it stays as it was loaded before.

    Args:
        name: the module's dotted name.
        own: the project's files that the module imports, relative to the import path.
    """
    names = {_module_name(file) for file in own}
    for loaded, module in list(sys.modules.items()):
        wanted = loaded in names or loaded.partition(".")[0] == name.partition(".")[0]
        file = getattr(module, "__file__", None)
        if wanted and file is not None and not file.startswith(_INSTALLED):
            del sys.modules[loaded]
    importlib.invalidate_caches()
    return importlib.import_module(name)


@contextmanager
def sources_first(folder: Path) -> Iterator[None]:
    """Put a folder first on the import path, and compile what is not installed from its source."""
    place, finder = str(folder), _Finder()
    sys.path.insert(0, place)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path.remove(place)


class _Finder:
    """Finds modules like the other finders, and gives those that are not installed another loader."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        others = (finder for finder in list(sys.meta_path) if not isinstance(finder, _Finder))
        found = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        loader = None if found is None else found.loader
        if found is not None and type(loader) is SourceFileLoader and not loader.path.startswith(_INSTALLED):
            found.loader = _SourceLoader(name, loader.path)
        return found


class _SourceLoader(SourceFileLoader):
    """Neither reads nor writes byte code: it is taken for fresh if a source changes within a second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
