"""Where candidates run: the processor, an idle one of this machine's GPUs, or a device of another machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Protocol, Self

from anole.measure.lock import device_lock, idle_device
from anole.targets.base import Device, Place, Unit
from anole.targets.rpc.address import Remote


class Site(Protocol):
    """A place for candidates to run; a context manager that gives back what it holds.

    Attributes:
        is_disturbed: whether building candidates disturbs those that are timed.
        remote: where it is, unless it is here.
    """

    is_disturbed: bool
    remote: Remote | None

    def __enter__(self) -> Self:
        """Returns it; nothing is held before it is needed."""

    def __exit__(self, *_: object) -> None:
        """Gives back what is held."""

    def building(self) -> AbstractContextManager[None]:
        """Holds what building candidates needs."""

    def timing(self) -> AbstractContextManager[None]:
        """Holds the device alone; waits for whoever has it."""

    def environment(self) -> Mapping[str, str]:
        """Returns the variables by which a process sees the device, and no other."""


def site_of(target: Device, remote: Remote | None = None) -> Site:
    """Returns where candidates for a target run: elsewhere, if that is said, or on this machine."""
    if remote is not None:
        return Elsewhere(remote)
    return ProcessorSite(target) if target.place is Place.PROCESSOR else OneOfSeveral(target)


class ProcessorSite:
    """The processor, which is timed while nothing is built, and held no longer than that."""

    is_disturbed = True
    remote: Remote | None = None

    def __init__(self, target: Device) -> None:
        (self._unit,) = target.units()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def building(self) -> AbstractContextManager[None]:
        """Keeps timers out, but no other builders."""
        return device_lock(self._unit.name, shared=True)

    def timing(self) -> AbstractContextManager[None]:
        """Keeps everybody else out."""
        return device_lock(self._unit.name)

    def environment(self) -> Mapping[str, str]:
        """Returns what the processor needs: nothing."""
        return self._unit.environment


class OneOfSeveral:
    """One device of those that this machine has, the first that is idle; it is kept until the end.

    `timing` and `environment` raise TargetError where there is no such device.
    """

    is_disturbed = False
    remote: Remote | None = None

    def __init__(self, target: Device) -> None:
        self._target, self._held = target, ExitStack()
        self._unit: Unit | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()
        self._unit = None

    def building(self) -> AbstractContextManager[None]:
        """Holds nothing: the device does not notice."""
        return nullcontext()

    def timing(self) -> AbstractContextManager[None]:
        """Claims a device the first time."""
        self._claimed()
        return nullcontext()

    def environment(self) -> Mapping[str, str]:
        """Returns what hides all other devices; claims one the first time."""
        return self._claimed().environment

    def _claimed(self) -> Unit:
        if self._unit is None:
            units = {unit.name: unit for unit in self._target.units()}
            self._unit = units[self._held.enter_context(idle_device(list(units)))]
        return self._unit


class Elsewhere:
    """A device of another machine, which hands itself to one client at a time."""

    is_disturbed = False

    def __init__(self, remote: Remote) -> None:
        self.remote: Remote | None = remote

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def building(self) -> AbstractContextManager[None]:
        """Holds nothing: the device does not notice."""
        return nullcontext()

    def timing(self) -> AbstractContextManager[None]:
        """Holds nothing: the session does."""
        return nullcontext()

    def environment(self) -> Mapping[str, str]:
        """Returns nothing: the server has its own."""
        return {}
