"""Run local builds, and time their engines interleaved, each in its own process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anole.documents.build import Build
from anole.errors import AnoleError, BuildError
from anole.evaluate.engines import Engine
from anole.evaluate.timing.engine_process import Started, start_engines
from anole.evaluate.timing.turns import Times, TurnSchedule, take_turns
from anole.measure.device_access import device_access
from anole.targets import get_target
from anole.targets.base import Device, DeviceLocation

Starts = Mapping[str, Callable[[], Engine]]
"""A function for each engine, by name, which starts it in the calling process."""


def rows_of_builds(
    folders: Sequence[Path], rows_of: Callable[[Path], Iterable[Mapping[str, Any]]], done: str = "timed"
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of each build; skip builds that cannot run on this machine, with a warning."""
    logging.basicConfig(level=logging.WARNING)
    for folder in folders:
        try:
            yield from rows_of(folder)
        except AnoleError as error:
            logging.warning("%s: was not %s: %s", folder, done, error)


def device_of(build: Build) -> Device:
    """Return the target of a build; raise a `BuildError` if it is simulated or not on this machine."""
    target = get_target(build.target_description)
    if target.location is DeviceLocation.SIMULATOR:
        raise BuildError("a simulated network cannot be compared with other engines")
    if (absence := target.absence()) is not None:
        raise BuildError(absence)
    return target


@contextmanager
def set_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that are started within the block."""
    saved = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


def time_in_turns(
    folder: Path, device: Device, starts_in: Callable[[Path], Starts], schedule: TurnSchedule
) -> tuple[dict[str, Started], dict[str, list[Times]]]:
    """Time the engines of a build interleaved; return the start-up report and the times of each that starts.

    Args:
        folder: the build.
        device: where it runs.
        starts_in: returns the start functions of the engines, given a folder for files that they share.
        schedule: the length and number of turns.

    Raises:
        AnoleError: an engine exits before its last turn.
    """
    with TemporaryDirectory() as scratch, device_access(device) as access, ExitStack() as running:
        with set_environment({**device.environment(), **access.environment()}):
            engines = start_engines(starts_in(Path(scratch)), running, folder)
        with access.timing():
            timers = {name: partial(engine.burst, schedule.min_burst_s) for name, engine in engines.items()}
            times = take_turns(timers, schedule)
    return {name: engine.started for name, engine in engines.items()}, times
