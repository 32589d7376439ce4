"""Where candidates run: the processor, an idle one of this machine's GPUs, or devices of other machines."""

from __future__ import annotations

import logging
import statistics
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Self

from anole.host.lock import device_lock, idle_device
from anole.targets.base import Device, LocalDevice, Place
from anole.targets.rpc.address import Remote

logger = logging.getLogger(__name__)

_MAX_LATENCY_RATIO = 1.07
"""How many times as long a kernel takes on a server that is not like the fastest one."""

_ROUNDS = 3
"""Comparisons before a difference is told: what lasts for a batch or two may be a neighbour's work."""


class DeviceAccess:
    """A place where candidates run, on this machine unless it is `remote`; a context manager that releases it."""

    is_disturbed = False
    """Whether building candidates disturbs those that are timed."""

    remote: Remote | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def building(self) -> AbstractContextManager[None]:
        """Return a context that holds the locks needed to build candidates: none, if no device notices."""
        return nullcontext()

    def timing(self) -> AbstractContextManager[None]:
        """Return a context that holds the device exclusively; waits while another process has it."""
        return nullcontext()

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables that make only this device visible to a process."""
        return {}


def device_access(target: Device, remote: Remote | None = None) -> DeviceAccess:
    """Return the site of a target's candidates: the remote devices if given, otherwise this machine."""
    if remote is not None:
        return RemoteDevices(remote)
    return ProcessorAccess(target) if target.place is Place.PROCESSOR else FirstIdleDevice(target)


class ProcessorAccess(DeviceAccess):
    """The processor of this machine; timing excludes building, and holds the lock only while it lasts."""

    is_disturbed = True

    def __init__(self, target: Device) -> None:
        (self._unit,) = target.units()

    def building(self) -> AbstractContextManager[None]:
        """Lock out timing, but not other builds."""
        return device_lock(self._unit.name, shared=True)

    def timing(self) -> AbstractContextManager[None]:
        """Lock out all other timing and building."""
        return device_lock(self._unit.name)

    def environment(self) -> Mapping[str, str]:
        """Return the processor's variables."""
        return self._unit.environment


class FirstIdleDevice(DeviceAccess):
    """The first idle one of several devices of this machine, which is held until the site is left.

    `timing` and `environment` claim a device at the first call, and raise TargetError if there is none.
    """

    def __init__(self, target: Device) -> None:
        self._target, self._held = target, ExitStack()
        self._unit: LocalDevice | None = None

    def __exit__(self, *_: object) -> None:
        self._held.close()
        self._unit = None

    def timing(self) -> AbstractContextManager[None]:
        """Hold nothing more than the site does."""
        self._claimed()
        return nullcontext()

    def environment(self) -> Mapping[str, str]:
        """Return the variables that hide all other devices."""
        return self._claimed().environment

    def _claimed(self) -> LocalDevice:
        if self._unit is None:
            units = {unit.name: unit for unit in self._target.units()}
            self._unit = units[self._held.enter_context(idle_device(list(units)))]
        return self._unit


class RemoteDevices(DeviceAccess):
    """Devices of other machines, behind servers that serve one client at a time; sessions hold the devices.

    Attributes:
        likeness: what is known of whether the servers are alike, over all tasks that are measured there.
        absent: what was told to be absent, and has not come back since.
    """

    remote: Remote

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.likeness = ServerConsistency()
        self.absent: set[str] = set()


class ServerConsistency:
    """Whether servers are alike: the same kernel takes about as long on all; tells once of each that is slower.

    One comparison is enough where all are about as fast.
    """

    def __init__(self) -> None:
        self._rounds: defaultdict[frozenset[str], list[Mapping[str, float]]] = defaultdict(list)
        self._settled: set[frozenset[str]] = set()
        self._describe: set[str] = set()

    def wants(self, servers: frozenset[str]) -> bool:
        """Whether these servers are to be compared once more."""
        return len(servers) > 1 and not any(servers <= settled for settled in self._settled)

    def add(self, latencies_s: Mapping[str, float]) -> None:
        """Add the latencies of one kernel on several servers, by their names."""
        servers = frozenset(latencies_s)
        if not self.wants(servers):
            return
        fastest_s, rounds = min(latencies_s.values()), self._rounds[servers]
        rounds.append({server: latency_s / fastest_s for server, latency_s in latencies_s.items()})
        slower = [server for server in sorted(servers) if all(ratios[server] > _MAX_LATENCY_RATIO for ratios in rounds)]
        if not slower:
            self._settled.add(servers)
        elif len(rounds) == _ROUNDS:
            self._settled.add(servers)
            for server in slower:
                self._tell(server, rounds)

    def _tell(self, server: str, rounds: list[Mapping[str, float]]) -> None:
        if server in self._describe:
            return
        self._describe.add(server)
        logger.warning(
            "%s is not like %s: the same kernel takes %.2f times as long there (median of %d comparisons); "
            "servers that differ belong to different keys and targets, since one search compares their times",
            server,
            min(rounds[-1], key=lambda name: rounds[-1][name]),
            statistics.median(ratios[server] for ratios in rounds),
            len(rounds),
        )
