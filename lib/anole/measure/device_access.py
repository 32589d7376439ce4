"""Access to the devices that run candidates: the CPU, an idle local GPU, or remote devices."""

from __future__ import annotations

import logging
import statistics
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext

from anole.host.lock import lock_device, lock_idle_device
from anole.targets.base import Device, DeviceLocation, LocalDevice
from anole.targets.rpc.address import Remote

logger = logging.getLogger(__name__)

_MAX_LATENCY_RATIO = 1.07
"""A server is too slow if a kernel takes more than this many times as long as on the fastest server."""

_MAX_COMPARISONS = 3
"""Number of comparisons before a difference is reported: in one or two batches, the cause may be background load."""


class DeviceAccess(AbstractContextManager["DeviceAccess"]):
    """Access to the devices that run candidates, local unless `remote` is set; a context manager that releases them."""

    is_disturbed = False
    """Whether building candidates disturbs timing."""

    remote: Remote | None = None

    def __exit__(self, *_: object) -> None:
        pass

    def building(self) -> AbstractContextManager[None]:
        """Return a context that holds the locks needed to build candidates; none if builds disturb no timing."""
        return nullcontext()

    def timing(self) -> AbstractContextManager[None]:
        """Return a context that waits for the device and then holds it exclusively."""
        return nullcontext()

    def environment(self) -> Mapping[str, str]:
        """Return environment variables that make only this device visible to a process."""
        return {}


def device_access(target: Device, remote: Remote | None = None) -> DeviceAccess:
    """Return the access to a target's devices, which are local unless `remote` is set."""
    if remote is not None:
        return RemoteDevices(remote)
    return ProcessorAccess(target) if target.location is DeviceLocation.PROCESSOR else FirstIdleDevice(target)


class ProcessorAccess(DeviceAccess):
    """The CPU of this machine; timing and building exclude each other, and hold the lock only while they run."""

    is_disturbed = True

    def __init__(self, target: Device) -> None:
        (self._unit,) = target.units()

    def building(self) -> AbstractContextManager[None]:
        """Exclude timing, but not other builds."""
        return lock_device(self._unit.name, shared=True)

    def timing(self) -> AbstractContextManager[None]:
        """Exclude all other timing and building."""
        return lock_device(self._unit.name)

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables for the CPU."""
        return self._unit.environment


class FirstIdleDevice(DeviceAccess):
    """The first idle device of several local devices, held until the context ends.

    The first call of `timing` or `environment` claims a device; it raises TargetError if the machine has none.
    """

    def __init__(self, target: Device) -> None:
        self._target, self._claims = target, ExitStack()
        self._unit: LocalDevice | None = None

    def __exit__(self, *_: object) -> None:
        self._claims.close()
        self._unit = None

    def timing(self) -> AbstractContextManager[None]:
        """Claim the device; no further lock is needed."""
        self._claim()
        return nullcontext()

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables that hide all other devices."""
        return self._claim().environment

    def _claim(self) -> LocalDevice:
        if self._unit is None:
            units = {unit.name: unit for unit in self._target.units()}
            self._unit = units[self._claims.enter_context(lock_idle_device(list(units)))]
        return self._unit


class RemoteDevices(DeviceAccess):
    """Devices of other machines, each held by a session with a server that serves one client at a time.

    Attributes:
        consistency: speed comparisons of the servers, shared by all tasks that are measured there.
        absent: names of servers that were reported as absent and have not come back.
    """

    remote: Remote

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.consistency = ServerConsistency()
        self.absent: set[str] = set()


class ServerConsistency:
    """A comparison of servers' speed with the same kernel, which warns once about each slower server.

    A single comparison is enough if all servers are about equally fast.
    """

    def __init__(self) -> None:
        self._rounds: defaultdict[frozenset[str], list[Mapping[str, float]]] = defaultdict(list)
        self._settled: set[frozenset[str]] = set()
        self._reported: set[str] = set()

    def wants(self, servers: frozenset[str]) -> bool:
        """Whether these servers should be compared again."""
        return len(servers) > 1 and not any(servers <= settled for settled in self._settled)

    def add(self, latencies_s: Mapping[str, float]) -> None:
        """Add the latencies of one kernel on several servers, by server name."""
        servers = frozenset(latencies_s)
        if not self.wants(servers):
            return
        fastest_s, rounds = min(latencies_s.values()), self._rounds[servers]
        rounds.append({server: latency_s / fastest_s for server, latency_s in latencies_s.items()})
        slower = [server for server in sorted(servers) if all(ratios[server] > _MAX_LATENCY_RATIO for ratios in rounds)]
        if not slower:
            self._settled.add(servers)
        elif len(rounds) == _MAX_COMPARISONS:
            self._settled.add(servers)
            for server in slower:
                self._report_slower(server, rounds)

    def _report_slower(self, server: str, rounds: list[Mapping[str, float]]) -> None:
        if server in self._reported:
            return
        self._reported.add(server)
        logger.warning(
            "%s is slower than %s: the same kernel takes %.2f times as long (median of %d comparisons); "
            "use different keys and targets for servers of different speed, because a search compares their latencies",
            server,
            min(rounds[-1], key=lambda name: rounds[-1][name]),
            statistics.median(ratios[server] for ratios in rounds),
            len(rounds),
        )
