"""Check a model's `source` and find its files without importing torch or the user's code."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.machinery import all_suffixes
from os.path import isdir, isfile
from pathlib import Path

from anole.config.onnx_files import OnnxFileError, external_files
from anole.errors import cause
from anole.host.launcher import LIBRARY, callers_packages
from anole.node import Node

_SCHEMES = ("torchvision", "torch", "onnx")
_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})
"""Names of the folders that hold installed packages."""


def check_source(node: Node, project: Path) -> None:
    """Raise SpecError unless a model's ``source`` exists in the project or is installed."""
    scheme, colon, location = node.text().partition(":")
    if not colon or scheme not in _SCHEMES:
        forms = "torchvision:<name>, torch:<module>:<factory> or onnx:<path>"
        raise node.error(f"found {node.value!r}; a source is {forms}")
    if scheme == "torchvision":
        Node(location, node.path, node.file).choice(torchvision_models(), "a torchvision model")
    elif scheme == "onnx":
        if not isfile(project / location):
            raise node.error(f"found no file {location!r} in {project.resolve()}")
        try:
            external_files(project / location)
        except OnnxFileError as error:
            raise node.error(f"{location}: {error}") from error
    else:
        _check_factory(node, location, project)


@lru_cache(maxsize=1)
def torchvision_models() -> tuple[str, ...]:
    """Return the names that `torchvision.models.get_model` accepts, read from torchvision's source code."""
    package = importlib.util.find_spec("torchvision")
    if package is None or not package.submodule_search_locations:
        return ()
    names = set()
    for file in Path(package.submodule_search_locations[0], "models").rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                names |= {name for decorator in node.decorator_list for name in _registered_names(decorator, node.name)}
    return tuple(sorted(names))


def find_module(name: str, project: Path) -> Path | None:
    """Find a module's file without importing its parents, searching the project folder first.

    The file of a package is its ``__init__.py``; for a package without one, return its folder.
    """
    top, *rest = name.split(".")
    path = _find_in(project, top)
    if path is None or path.is_dir():
        path = _find_installed(top) or path
    for part in rest:
        if path is None:
            return None
        path = _find_in(path.parent if path.name == "__init__.py" else path, part)
    return path


def module_names(file: Path) -> frozenset[str] | None:
    """Return the names that a Python file defines at its top level, or None if they are dynamic.

    Raises:
        SyntaxError: the file is not Python or cannot be read.
    """
    return _names(_tree(file))


def model_files(source: str, project: Path) -> list[Path]:
    """Return the files that define a model, relative to the project.

    For ONNX these are the file and its external weights; for a torch factory, its module and all modules that it
    imports, directly or indirectly, from the project or from a source folder on ``PYTHONPATH`` (as absolute paths); for
    torchvision, nothing.

    Raises:
        OnnxFileError: an ONNX file cannot be read, or a weight is not in a file of its folder.
    """
    scheme, _, location = source.partition(":")
    if scheme == "onnx":
        path = Path(location)
        weights = external_files(project / path) if isfile(project / path) else []
        return [path, *(path.parent / file for file in weights)]
    if scheme == "torch":
        return sorted(_import_closure(location.partition(":")[0], project))
    return []


def _check_factory(node: Node, location: str, project: Path) -> None:
    module, colon, factory = location.partition(":")
    is_dotted_name = all(part.isidentifier() for part in module.split("."))
    if not colon or not is_dotted_name or not factory.isidentifier():
        raise node.error(f"found {node.value!r}; a torch source is torch:<package.module>:<factory>")
    file = find_module(module, project)
    if file is None:
        raise node.error(f"found no module {module!r}, neither in {project.resolve()} nor installed")
    try:
        names = module_names(file) if file.suffix == ".py" else None
    except SyntaxError as error:
        place = f"{file}, line {error.lineno}," if error.lineno else f"{file}"
        raise node.error(f"{place} cannot be parsed: {error.msg}") from error
    if names is not None:
        Node(factory, node.path, node.file).choice(sorted(names), f"defined by {module}")


def _import_closure(module: str, project: Path) -> set[Path]:
    files: set[Path] = set()
    folders = [project, *_source_folders()]
    names, seen = [module], set()
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        is_editable = any(_find_in(folder, name.partition(".")[0]) for folder in folders)
        file = find_module(name, project) if is_editable else None
        if file is None or file.suffix != ".py" or not any(_is_source(file, folder) for folder in folders):
            continue
        files.add(file.relative_to(project) if file.is_relative_to(project) else file)
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        try:
            tree = _tree(file)
        except SyntaxError:
            continue
        names += [prefix for imported in _imported_names(tree, package) for prefix in _prefixes(imported)]
        names += _prefixes(package)
    return files


def _is_source(file: Path, folder: Path) -> bool:
    """Whether a file is in a folder, but not in a virtual environment within it."""
    return file.is_relative_to(folder) and _PACKAGE_FOLDERS.isdisjoint(file.relative_to(folder).parts)


def _source_folders() -> list[Path]:
    """Return the folders on ``PYTHONPATH`` with editable sources, other than installed packages and Anole."""
    folders = map(Path, callers_packages())
    return [folder for folder in folders if folder != LIBRARY and next(folder.glob("*.dist-info"), None) is None]


def _tree(file: Path) -> ast.Module:
    """Return the syntax tree of a Python file; raise SyntaxError if it is not Python or cannot be read."""
    try:
        status = file.stat()
        return _parse(file, status.st_mtime_ns, status.st_size)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(f"it cannot be read: {cause(error)}") from error


# Many models may come from one module; it is parsed again only after its modification time or size changes.
@lru_cache(maxsize=256)
def _parse(file: Path, modified_ns: int, size_bytes: int) -> ast.Module:
    return ast.parse(file.read_bytes(), str(file))


@lru_cache(maxsize=256)
def _names(tree: ast.Module) -> frozenset[str] | None:
    """Return the names that a module defines, or None if they are dynamic."""
    try:
        names = set(_bound_names(tree.body))
    except RecursionError as error:
        raise SyntaxError("it is nested too deeply") from error
    used_names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return None if names & {"*", "__getattr__"} or used_names & {"exec", "globals", "vars"} else frozenset(names)


def _find_in(folder: Path, name: str) -> Path | None:
    files = [folder / name / "__init__.py", *(folder / f"{name}{suffix}" for suffix in all_suffixes())]
    module = next((file for file in files if isfile(file)), None)
    return module or (folder / name if isdir(folder / name) else None)


def _find_installed(name: str) -> Path | None:
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # Some modules, such as __main__, have no spec.
        return None
    return Path(spec.origin) if spec and spec.has_location and spec.origin else None


@lru_cache(maxsize=256)
def _imported_names(tree: ast.Module, package: str) -> tuple[str, ...]:
    """Return the names of all modules that a module may import."""
    return tuple(_iterate_imports(tree, package))


def _iterate_imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts)) if name]


def _registered_names(decorator: ast.expr, function: str) -> list[str]:
    if not isinstance(decorator, ast.Call) or getattr(decorator.func, "id", None) != "register_model":
        return []
    arguments = [*decorator.args, *(keyword.value for keyword in decorator.keywords if keyword.arg == "name")]
    return [str(node.value) for node in arguments if isinstance(node, ast.Constant)] or [function]


def _bound_names(body: Sequence[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        else:
            blocks = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
            blocks += [handler.body for handler in getattr(node, "handlers", [])]
            for block in blocks:
                yield from _bound_names(block)
            parts = [node] if not any(blocks) else [getattr(node, "target", None), *getattr(node, "items", [])]
            for child in (child for part in parts if part is not None for child in ast.walk(part)):
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    yield child.id
