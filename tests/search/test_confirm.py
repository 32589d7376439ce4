"""Which trials are the best: by speed, by what that is worth, and of each piece of hardware."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.record import Confirmation, Measurement, Status, Trial, utc_now
from anole.search.confirm import diverse, fastest, fastest_of_each, ranked, rivals, settle
from anole.search.presets import read_tuner
from anole.search.watch import Watch


def trial(number, latency_s, **config):
    measurement = (
        Measurement(Status.RUN_ERROR, error="no result")
        if latency_s is None
        else Measurement(Status.OK, latency_s=latency_s)
    )
    return Trial(number=number, iteration=0, config=config, measurement=measurement, **MORE)


MORE = {"gflops": None, "elapsed_s": 0.0, "created_at": utc_now()}


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
def test_there_is_one_of_each_hardware_and_none_is_faster(made):
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
    assert latencies_s == sorted(latencies_s)


@given(trials)
def test_without_knobs_of_the_hardware_there_is_none(made):
    assert fastest_of_each(made, []) == []


@given(trials)
def test_the_fastest_by_worth_come_first_and_each_config_once(made):
    found = fastest(made, half_of_wide)
    costs = [each.measurement.latency_s / half_of_wide(each.config, each.measurement.latency_s) for each in found]
    assert costs == sorted(costs)
    assert len({str(each.config) for each in found}) == len(found)
    assert {str(each.config) for each in found} == {
        str(each.config) for each in made if each.measurement.latency_s is not None
    }


def test_the_default_competes_with_the_fastest_but_not_with_itself():
    made = [trial(number, latency_s, block=number) for number, latency_s in enumerate([3e-3, None, 1e-3, 2e-3])]
    fastest_two = [made[2].config, made[3].config]
    assert rivals(made, 2, None, fully) == fastest_two
    assert rivals(made, 2, made[0].config, fully) == [*fastest_two, made[0].config]
    assert rivals(made, 2, made[3].config, fully) == fastest_two
    assert rivals(made, 0, made[0].config, fully) == []


def confirmation(rank, latency_s, **config):
    measurement = Measurement(Status.WRONG_ANSWER) if latency_s is None else Measurement(Status.OK, latency_s=latency_s)
    return Confirmation(config, measurement, 4, rank, utc_now())


CONFIRMING = replace(read_tuner({}), n_confirm=3)


class Interrupted(Exception):
    pass


class Confirming:
    """A run of five trials whose confirmations are measured by a formula and kept."""

    def __init__(self):
        self.trials = [trial(number, latency_s, block=number) for number, latency_s in enumerate([3, 1, None, 2, 4])]
        self.kept, self.rounds = [], []

    def settle(self, most=None, default=None, able=True):
        """Confirms the run, and stops when `most` confirmations of it are kept."""

        def keep(confirmation):
            if len(self.kept) == most:
                raise Interrupted
            self.kept.append(confirmation)

        def measure(configs):
            self.rounds.append([config["block"] for config in configs])
            return [Measurement(Status.OK, latency_s=10 - config["block"]) for config in configs]

        watch = Watch(confirmation=keep)
        return settle(self.trials, CONFIRMING, self.kept, measure if able else None, fully, watch, default)


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_round_that_was_interrupted_is_confirmed_again_as_a_whole(most):
    run, whole = Confirming(), Confirming()
    ranking = whole.settle(default={"block": 9})
    assert len(whole.kept) == 4
    with pytest.raises(Interrupted):
        run.settle(most, {"block": 9})
    assert [each.config for each in run.settle(default={"block": 9})] == [each.config for each in ranking]
    assert run.rounds == [[1, 3, 0, 9]] * 2
    assert [each.rank for each in run.kept] == [*range(most), *range(4)]


def test_a_complete_round_is_not_confirmed_again():
    run = Confirming()
    ranking = run.settle(default={"block": 9})
    assert run.settle(default={"block": 9}) == ranking and len(run.rounds) == 1
    # A round of an older version, in which the default did not compete, or of one with other rivals.
    assert run.settle(default=None) == ranking and len(run.rounds) == 1
    run.settle(default={"block": 8})
    assert run.rounds[1:] == [[1, 3, 0, 8]]


def test_without_the_device_an_interrupted_round_is_better_than_none():
    run = Confirming()
    with pytest.raises(Interrupted):
        run.settle(2, {"block": 9})
    assert run.settle(default={"block": 9}, able=False)[:2] == run.kept


def test_a_trial_that_works_after_all_makes_a_new_round():
    run = Confirming()
    run.settle()
    run.trials[2] = trial(2, 0.5, block=2)
    run.settle()
    assert run.rounds == [[1, 3, 0], [2, 1, 3]]
    assert [each.config["block"] for each in run.settle(able=False)[:3]] == [3, 2, 1]


def test_what_was_confirmed_goes_before_what_was_only_tried():
    made = [trial(number, latency_s, block=number) for number, latency_s in enumerate([1.0, 2.0, None, 3.0, 0.5])]
    slow, wrong, fast = confirmation(1, 6.0, block=0), confirmation(2, None, block=4), confirmation(0, 4.0, block=9)
    assert ranked(made, [slow, wrong, fast], fully) == [fast, slow, made[1], made[3]]


@given(trials, st.integers(1, 8))
def test_rivals_are_of_all_kinds_before_there_are_two_of_one(made, n):
    ranking = ranked(made, [], fully)
    near = [each for each in ranking if each.measurement.latency_s <= 2 * ranking[0].measurement.latency_s]
    found = diverse(ranking, ["block", "batch"], n)
    assert len(found) == min(n, len(near)) and found[:1] == ranking[:1]
    assert all(found.count(each) == 1 and each in near for each in found)
    kinds = [(each.config["block"], each.config["batch"]) for each in found]
    n_kinds = len({(each.config["block"], each.config["batch"]) for each in near})
    assert len(set(kinds[:n_kinds])) == min(n, n_kinds)
    for part in (found[:n_kinds], found[n_kinds:]):
        assert part == sorted(part, key=ranking.index)


def test_a_config_without_a_knob_is_of_a_kind_of_its_own():
    direct = [trial(number, 1.0 + number / 9, algorithm="direct", tile=number) for number in range(2)]
    winograd = [trial(2, 1.5, algorithm="winograd", tile_size=2), trial(3, 1.6, algorithm="winograd", tile_size=4)]
    found = diverse([*direct, *winograd], ["algorithm", "tile_size"], 8)
    assert found == [direct[0], *winograd, direct[1]]


def test_what_is_worth_less_must_be_faster_by_as_much():
    narrow, wide = trial(0, 3.0, block=16), trial(1, 2.0, block=32)
    assert ranked([narrow, wide], [], fully) == [wide, narrow]
    assert ranked([narrow, wide], [], half_of_wide) == [narrow, wide]
    assert ranked([narrow, trial(1, 1.0, block=32)], [], half_of_wide)[0].config == {"block": 32}


def test_what_is_worth_nothing_comes_last_but_is_found():
    nothing, slow = trial(0, 1e-6, block=32), trial(1, 1.0, block=16)
    assert fastest([nothing, slow], lambda config, _: float(config["block"] == 16)) == [slow, nothing]
    assert ranked([nothing], [], lambda *_: 0.0) == [nothing]


def test_what_was_confirmed_is_not_weighed_again():
    confirmed = Confirmation({"block": 32}, Measurement(Status.OK, latency_s=9.0), 2, 0, utc_now())
    assert ranked([trial(0, 1.0, block=16)], [confirmed], half_of_wide)[0] is confirmed


@pytest.mark.parametrize("worth", [fully, half_of_wide])
def test_of_nothing_that_worked_there_is_no_best(worth):
    assert ranked([trial(0, None, block=16)], [], worth) == []
    assert fastest_of_each([trial(0, None, block=16)], ["block"]) == []
