"""Engines take turns, and no round is begun after the limit."""

from __future__ import annotations

import time

from anole.evaluate.timing.turns import Pace, time_interleaved


def test_every_round_begins_with_another_engine() -> None:
    turns: list[str] = []
    engines = {name: lambda name=name: turns.append(name) for name in "abc"}
    times = time_interleaved(engines, Pace(rounds=4, burst_s=0.0, pause_s=0.0))
    # At last there are twelve turns, in which two runs warm up and one is timed.
    assert turns[-36::3] == [*"abc", *"bca", *"cab", *"abc"]
    assert {name: [len(burst) for burst in bursts] for name, bursts in times.items()} == dict.fromkeys("abc", [1] * 4)


def test_a_turn_lasts_as_long_as_asked() -> None:
    naps_s: list[float] = []

    def nap() -> None:
        began_s = time.perf_counter()
        time.sleep(2e-3)
        naps_s.append(time.perf_counter() - began_s)

    times = time_interleaved({"nap": nap}, Pace(rounds=2, burst_s=0.02, pause_s=0.0))
    for burst in times["nap"]:
        assert burst.sum() >= 0.02 > burst[:-1].sum()
    # The last runs of a round are timed, each with little beside the engine's own time.
    assert (times["nap"][-1] >= naps_s[-len(times["nap"][-1]) :]).all()


def test_slow_engines_get_three_rounds() -> None:
    pace = Pace(rounds=50, burst_s=0.0, pause_s=0.0, limit_s=0.0)
    assert len(time_interleaved({"slow": lambda: time.sleep(1e-3)}, pace)["slow"]) == 3
