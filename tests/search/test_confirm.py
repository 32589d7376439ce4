"""Confirmation and ranking of trials: by speed, by worth, and for each hardware design."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.record import Confirmation, Measurement, Status, Trial, utc_now
from anole.search.confirm import diversify, fastest, fastest_of_each, rank, rivals, settle
from anole.search.presets import read_tuner
from anole.search.watch import Watch

NOW = utc_now()


def measurement(latency_s):
    status = Status.RUN_ERROR if latency_s is None else Status.OK
    return Measurement(status, latency_s=latency_s)


def trial(number, latency_s, **config):
    return Trial(number, 0, config, measurement(latency_s), 0.0, None, NOW)


def blocks(*latencies_s):
    """Return one trial for each latency, with its number as `block`."""
    return [trial(number, latency_s, block=number) for number, latency_s in enumerate(latencies_s)]


def fully(config, latency_s):
    return 1.0


def half_of_wide(config, latency_s):
    return 0.5 if config["block"] > 16 else 1.0


trials = st.lists(
    st.tuples(st.sampled_from([8, 16, 32]), st.sampled_from([1, 2]), st.integers(1, 3), st.none() | st.integers(1, 9)),
    max_size=12,
).map(
    lambda rows: [
        trial(number, latency_s, block=block, batch=batch, tile=tile)
        for number, (block, batch, tile, latency_s) in enumerate(rows)
    ]
)


@given(trials)
def test_the_fastest_of_each_hardware_is_found_once(made):
    found = fastest_of_each(made, ["block", "batch"])
    working = [each for each in made if each.measurement.latency_s is not None]
    by_hardware = {}
    for each in working:
        by_hardware.setdefault((each.config["block"], each.config["batch"]), []).append(each.measurement.latency_s)
    assert {(each.config["block"], each.config["batch"]): each.measurement.latency_s for each in found} == {
        hardware: min(latencies_s) for hardware, latencies_s in by_hardware.items()
    }
    assert len(found) == len(by_hardware)
    latencies_s = [each.measurement.latency_s for each in found]
    assert latencies_s == sorted(latencies_s) and fastest_of_each(made, []) == []


@given(trials)
def test_configs_are_unique_and_sorted_by_latency_over_worth(made):
    found = fastest(made, half_of_wide)
    costs = [each.measurement.latency_s / half_of_wide(each.config, each.measurement.latency_s) for each in found]
    assert costs == sorted(costs)
    assert len({str(each.config) for each in found}) == len(found)
    working = [each for each in made if each.measurement.latency_s is not None]
    assert {str(each.config) for each in found} == {str(each.config) for each in working}


def test_the_default_competes_with_the_fastest_but_not_with_itself():
    slow, _, first, second = (each.config for each in blocks(3e-3, None, 1e-3, 2e-3))
    for n, default, expected in (
        (2, None, [first, second]),
        (2, slow, [first, second, slow]),
        (2, second, [first, second]),
        (0, slow, []),
    ):
        assert rivals(blocks(3e-3, None, 1e-3, 2e-3), n, default, fully) == expected
    assert rivals(blocks(None, None), 2, slow, fully) == [], "where nothing worked, nothing is confirmed"


def confirmation(rank, latency_s, **config):
    return Confirmation(config, measurement(latency_s), 4, rank, NOW)


CONFIRMING = replace(read_tuner({}), n_confirm=3)


class Interrupted(Exception):
    pass


class Confirming:
    """A run of five trials whose confirmations are measured by a formula and kept."""

    def __init__(self):
        self.trials = blocks(3, 1, None, 2, 4)
        self.kept, self.rounds = [], []

    def settle(self, max_kept=None, default=None, able=True):
        """Confirm the run, and interrupt it after `max_kept` confirmations."""

        def keep(confirmation):
            if len(self.kept) == max_kept:
                raise Interrupted
            self.kept.append(confirmation)

        def measure(configs):
            self.rounds.append([config["block"] for config in configs])
            return [measurement(10 - config["block"]) for config in configs]

        watch = Watch(confirmation=keep)
        return settle(self.trials, CONFIRMING, self.kept, measure if able else None, fully, watch, default)


@pytest.mark.parametrize("max_kept", [0, 1, 3])
def test_an_interrupted_round_is_repeated_in_full(max_kept):
    run, complete = Confirming(), Confirming()
    ranking = complete.settle(default={"block": 9})
    assert len(complete.kept) == 4
    with pytest.raises(Interrupted):
        run.settle(max_kept, {"block": 9})
    assert [each.config for each in run.settle(default={"block": 9})] == [each.config for each in ranking]
    assert run.rounds == [[1, 3, 0, 9]] * 2
    assert [each.rank for each in run.kept] == [*range(max_kept), *range(4)]


def test_a_complete_round_is_not_confirmed_again():
    run = Confirming()
    ranking = run.settle(default={"block": 9})
    assert run.settle(default={"block": 9}) == ranking and len(run.rounds) == 1
    # A round with other rivals, or of an older version, in which the default did not compete.
    assert run.settle(default=None) == ranking and len(run.rounds) == 1
    run.settle(default={"block": 8})
    assert run.rounds[1:] == [[1, 3, 0, 8]]


def test_without_the_device_an_interrupted_round_is_used():
    run = Confirming()
    with pytest.raises(Interrupted):
        run.settle(2, {"block": 9})
    assert run.settle(default={"block": 9}, able=False)[:2] == run.kept


def test_new_trials_or_a_new_success_start_a_new_round():
    run = Confirming()
    run.settle()
    run.trials[2] = trial(2, 0.5, block=2)
    run.settle()
    assert run.rounds == [[1, 3, 0], [2, 1, 3]]
    assert {each.after_trials for each in run.kept} == {5}
    assert [each.config["block"] for each in run.settle(able=False)[:3]] == [3, 2, 1]
    run.trials.append(trial(5, 9, block=5))
    assert run.settle()[0].after_trials == 6 and run.rounds[2:] == [[2, 1, 3]]


def test_confirmed_configs_come_before_unconfirmed_trials():
    made = blocks(1.0, 2.0, None, 3.0, 0.5)
    slow, wrong, fast = confirmation(1, 6.0, block=0), confirmation(2, None, block=4), confirmation(0, 4.0, block=9)
    assert rank(made, [slow, wrong, fast], fully) == [fast, slow, made[1], made[3]]


@given(trials, st.integers(1, 8))
def test_rivals_cover_all_kinds_before_any_repeats(made, n):
    ranking = rank(made, [], fully)
    near = [each for each in ranking if each.measurement.latency_s <= 2 * ranking[0].measurement.latency_s]
    found = diversify(ranking, ["block", "batch"], n)
    assert len(found) == min(n, len(near)) and found[:1] == ranking[:1]
    assert all(found.count(each) == 1 and each in near for each in found)
    kinds = [(each.config["block"], each.config["batch"]) for each in found]
    n_kinds = len({(each.config["block"], each.config["batch"]) for each in near})
    assert len(set(kinds[:n_kinds])) == min(n, n_kinds)
    for part in (found[:n_kinds], found[n_kinds:]):
        assert part == sorted(part, key=ranking.index)


def test_configs_without_a_knob_form_a_separate_kind():
    direct = [trial(number, 1.0 + number / 9, algorithm="direct", tile=number) for number in range(2)]
    winograd = [trial(2, 1.5, algorithm="winograd", tile_size=2), trial(3, 1.6, algorithm="winograd", tile_size=4)]
    found = diversify([*direct, *winograd], ["algorithm", "tile_size"], 8)
    assert found == [direct[0], *winograd, direct[1]]


def test_worth_scales_latency_except_for_confirmed_configs():
    narrow, wide, wider = trial(0, 3.0, block=16), trial(1, 2.0, block=32), trial(1, 1.0, block=32)
    confirmed = confirmation(0, 9.0, block=32)
    assert rank([narrow, wide], [], fully) == [wide, narrow]
    assert rank([narrow, wide], [], half_of_wide) == [narrow, wide]
    assert rank([narrow, wider], [], half_of_wide) == [wider, narrow]
    assert rank([narrow], [confirmed], half_of_wide) == [confirmed, narrow]


def test_worthless_configs_come_last_but_are_listed():
    nothing, slow = trial(0, 1e-6, block=32), trial(1, 1.0, block=16)
    assert fastest([nothing, slow], lambda config, _: float(config["block"] == 16)) == [slow, nothing]
    assert rank([nothing], [], lambda *_: 0.0) == [nothing]
    assert rank([trial(0, None, block=16)], [], half_of_wide) == []
