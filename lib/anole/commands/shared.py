"""Parameter types, options and set-up steps shared by commands."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import reduce, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anole.commands.candidates import presets
from anole.documents import layout
from anole.errors import SpecError, TargetError
from anole.files import read_regular
from anole.host import guard

if TYPE_CHECKING:
    from rich.console import RenderableType

    from anole.config.entries import ModelSpec

_UNLIMITED_SIZE = 10_000
"""More columns and lines than any table has, which disables wrapping."""


class Counts(click.ParamType[tuple[int, ...]]):
    """Distinct numbers of processes, separated by commas."""

    name = "counts"
    _max_count = 256

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Parse the numbers in `value`, such as 0,1,2."""
        if not isinstance(value, str):
            return value
        items = [item.strip() for item in value.split(",")]
        counts = tuple(int(item) for item in items if item.isdecimal() and int(item) <= self._max_count)
        if len(counts) < len(items) or len(set(counts)) < len(counts):
            self.fail(
                f"found {value!r}; distinct numbers from 0 to {self._max_count} are expected, such as 0,1,2", param
            )
        return counts


class Json(click.ParamType[dict[str, Any]]):
    """A JSON object, or a file that contains it: ``@path``."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Parse the JSON object in `value`."""
        if not isinstance(value, str):
            return value
        try:
            plain = json.loads(read_regular(Path(value[1:])) if value.startswith("@") else value)
        except ValueError as error:
            self.fail(f"{value!r} is not JSON: {error}", param, context)
        except OSError as error:
            self.fail(f"{value!r} cannot be read: {error.strerror}", param, context)
        if not isinstance(plain, dict):
            self.fail(f"{value!r} is not a JSON object", param, context)
        return plain


class OrderType(Json):
    """The order of a build or an accelerator, as JSON or a JSON file, decoded as the class ``module:class``."""

    name = "order"

    def __init__(self, cls: str) -> None:
        self._cls = cls

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Decode the order in `value`."""
        from anole.codec import DecodeError, decode
        from anole.targets.base import named_object

        try:
            return decode(named_object(self._cls), super().convert(value, param, context))
        except DecodeError as error:
            self.fail(f"{error}", param, context)


PATH = click.Path(path_type=Path)
PRESET = click.option("--preset", shell_complete=presets, help="Tuner preset.  [default: anole]")
_TUNING = (
    PRESET,
    click.option("--tuner", type=Json(), help="Complete tuner settings: a preset and its overrides."),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed."),
    click.option(
        "--shards", type=PATH, default=layout.SHARDS, show_default=True, help="Folder of the recorded trials."
    ),
    click.option("--measure", type=Json(), help="The target's `measure` entry: devices on other machines."),
    click.option(
        "--builders",
        type=click.IntRange(1),
        help="Candidates to build in parallel.  [default: the target's threads for the CPU, all cores otherwise]",
    ),
)
SPEC = click.option(
    "--spec",
    type=PATH,
    default=Path("models.yaml"),
    show_default=True,
    help="The file that lists models, targets and builds; its folder is the project folder.",
)
FILES = click.option("--files", help="The digest of the model's files, with --entry.")
REQUIRED = click.option("--required", is_flag=True, help="Fail if this machine is not the build's target.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
ORDER = click.option(
    "--order",
    type=OrderType("anole.documents.manifest:Order"),
    help="Order to compile, instead of the build's entry in models.yaml.",
)


def show(table: RenderableType) -> None:
    """Print a table fitted to the terminal, or in full to a file or a pipe."""
    from rich.console import Console

    # rich ignores a width without a height if TERM is dumb and colors are forced.
    console = Console() if sys.stdout.isatty() else Console(width=_UNLIMITED_SIZE, height=_UNLIMITED_SIZE)
    with console.capture() as captured:
        console.print(table)
    # Strip the trailing padding of lines.
    print(*map(str.rstrip, captured.get().splitlines()), sep="\n")


def tuning_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the tuning options to a command with ``--trials``, which receives them as its argument `options`."""

    @wraps(command)
    def with_options(
        *,
        preset: str | None,
        tuner: Any,
        seed: int,
        trials: int,
        shards: Path,
        measure: Any,
        builders: int | None,
        **other_options: Any,
    ) -> None:
        from anole.search.presets import read_tuner
        from anole.targets.rpc.address import Remote
        from anole.tune.job import TuneOptions

        settings = read_tuner(tuner or ({} if preset is None else {"preset": preset}))
        remote = Remote.from_json(measure or {})
        command(options=TuneOptions(settings, seed, trials, shards, remote, builders), **other_options)

    return reduce(lambda decorated, option: option(decorated), reversed(_TUNING), with_options)


def enter_project(spec: Path, *paths: Path | None) -> list[Path | None]:
    """Change to the project folder, which holds models.yaml; return the other paths, made absolute if it changes."""
    if spec.parent.resolve() == Path.cwd():
        return list(paths)
    if not spec.parent.is_dir():
        raise SpecError("", f"there is no folder {spec.parent}", str(spec))
    absolute_paths = [path if path is None else path.absolute() for path in paths]
    os.chdir(spec.parent)
    return absolute_paths


def guard_process(what: str) -> None:
    """Guard the rest of the command against crashes in a model's code; call it before heavy imports.

    The guard forks the process. It does nothing in a process that runs more than this command.
    """
    if getattr(click.get_current_context().find_root().command, "owns_process", False):
        guard.guard(what)


def require_target(what: str, description: Mapping[str, Any]) -> None:
    """Raise TargetError if this machine is not the target."""
    from anole.targets import get_target

    if (absence := get_target(description).absence()) is not None:
        raise TargetError(f"{what}: {absence}")


def block_torch_for(model: ModelSpec) -> None:
    """Prevent TVM from importing torch for a model that does not need it."""
    if model.scheme == "onnx":
        block_torch()


def block_torch() -> None:
    """Prevent TVM from importing torch, which takes most of TVM's import time."""
    import_module("anole.host.block_torch_import")
