"""Timing in turns: the order of engines, the length of a turn, and the time limit."""

from __future__ import annotations

import time

from anole.evaluate.timing.turns import TurnSchedule, time_interleaved


def test_the_order_of_engines_rotates() -> None:
    turns: list[str] = []
    engines = {name: lambda name=name: turns.append(name) for name in "abc"}
    times = time_interleaved(engines, TurnSchedule(max_rounds=4, min_burst_s=0.0, pause_s=0.0))
    # The last twelve turns have two warm-up runs and one timed run each.
    assert turns[-36::3] == [*"abc", *"bca", *"cab", *"abc"]
    assert {name: [len(burst) for burst in bursts] for name, bursts in times.items()} == dict.fromkeys("abc", [1] * 4)


def test_a_turn_lasts_at_least_burst_s() -> None:
    naps_s: list[float] = []

    def nap() -> None:
        began_s = time.perf_counter()
        time.sleep(2e-3)
        naps_s.append(time.perf_counter() - began_s)

    times = time_interleaved({"nap": nap}, TurnSchedule(max_rounds=2, min_burst_s=0.02, pause_s=0.0))
    for burst in times["nap"]:
        assert burst.sum() >= 0.02 > burst[:-1].sum()
    # The last runs of a round are timed, each with little overhead.
    assert (times["nap"][-1] >= naps_s[-len(times["nap"][-1]) :]).all()


def test_slow_engines_get_three_rounds() -> None:
    schedule = TurnSchedule(max_rounds=50, min_burst_s=0.0, pause_s=0.0, limit_s=0.0)
    assert len(time_interleaved({"slow": lambda: time.sleep(1e-3)}, schedule)["slow"]) == 3
