"""The engines, each started once for all tests of a worker, and skipped with a reason where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anole.errors import TargetError
from anole.testing.gpu_verdict import Engine
from anole.testing.opencl.engines import OclgrindEngine, PoclEngine
from anole.testing.opencl.pocl import Method


def started(engine: Engine) -> Iterator[Engine]:
    try:
        engine.__enter__()
    except TargetError as error:
        pytest.skip(str(error))
    yield engine
    engine.__exit__(None, None, None)


@pytest.fixture(scope="session")
def pocl() -> Iterator[Engine]:
    yield from started(PoclEngine())


@pytest.fixture(scope="session")
def replicating_pocl() -> Iterator[Engine]:
    yield from started(PoclEngine(Method.REPLICATED))


@pytest.fixture(scope="session")
def oclgrind() -> Iterator[Engine]:
    yield from started(OclgrindEngine())
