"""Pausing the garbage collector."""

from __future__ import annotations

import gc

import pytest

from anole.extract.load import pause_collector


def test_the_collector_runs_again_after_the_outermost_pause() -> None:
    with pytest.raises(ZeroDivisionError), pause_collector():
        with pause_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ZeroDivisionError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with pause_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
