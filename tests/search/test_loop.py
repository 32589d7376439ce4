"""The loop, on formulas: what it finds, and that nothing is lost or measured twice."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

from anole.codec import decode, encode
from anole.errors import ConfigError
from anole.keys import canonical_json
from anole.record import Measurement, Status, Trial
from anole.search.explore.guided_annealing import GuidedAnnealing
from anole.search.loop import tune
from anole.search.presets import PRESETS, read_tuner
from anole.search.progress import expected_gain
from anole.search.roles import Examples
from anole.search.state import Search, Subject
from anole.search.watch import Watch
from anole.space import ALGORITHM, Space, option_knob
from anole.testing import formulas
from anole.testing.in_memory import tune_in_memory

BRISK = {
    "autotvm": read_tuner(
        {
            "preset": "autotvm",
            "explorer": {"n_chains": 16, "n_steps": 15, "n_candidates": 16},
            "surrogate": {"max_rounds": 20},
            "sampler": {"least_random": 0},
            "batch": 6,
        }
    ),
    "random": read_tuner({"preset": "random", "batch": 6}),
}
"""The presets with little search, for tests of the loop itself."""


class Session:
    """One process that tunes: what it measured and what it acknowledged."""

    def __init__(
        self,
        formula,
        settings,
        n_trials,
        *,
        seed=0,
        task_key="task",
        recorded=(),
        prior=None,
        measure=None,
        on_iteration=lambda *_: None,
    ):
        self.trials, self.fresh = list(recorded), []
        formula.asked.clear()
        subject = Subject(formula.space, formula.flop, task_key, prior)
        given = subject, settings, measure or formula.measure, n_trials
        watch = Watch(on_iteration, self.acknowledge)
        self._tune = partial(tune_in_memory, *given, seed=seed, recorded=tuple(recorded), watch=watch)

    def acknowledge(self, trial):
        self.fresh.append(trial)
        self.trials.append(decode(Trial, json.loads(json.dumps(encode(trial)))))  # as it is read again

    def run(self):
        self.best = self._tune()
        return self


def outcome(trials):
    """What must not depend on interruptions: all of a trial but the times of day."""
    return [(t.number, t.iteration, canonical_json(dict(t.config)), t.measurement) for t in trials]


def configs(trials):
    return [canonical_json(dict(trial.config)) for trial in trials]


@pytest.fixture(params=BRISK)
def settings(request):
    return BRISK[request.param]


@cache
def uninterrupted(settings, n_trials=20):
    """Return the trials of an uninterrupted run on a bowl."""
    return tuple(Session(formulas.bowl(), settings, n_trials).run().trials)


@pytest.mark.guard
def test_autotvm_finds_what_random_search_does_not(bowl):
    excess = {}
    for preset in ("autotvm", "random"):
        bests = []
        for seed in range(3):
            session = Session(bowl, read_tuner({"preset": preset}), 192, seed=seed).run()
            bests.append(session.best.measurement.latency_s / bowl.optimum_s - 1)
        excess[preset] = np.mean(bests)
    assert excess["autotvm"] < 0.06
    assert excess["autotvm"] < 0.4 * excess["random"]


@pytest.mark.parametrize("search", [{"n_steps": 60}, pytest.param({}, marks=pytest.mark.slow)], ids=["brief", "own"])
@pytest.mark.parametrize("preset", [name for name in PRESETS if name not in ("random", "exhaustive")])
@pytest.mark.examples(1)
def test_every_tuner_chooses_between_algorithms_and_tunes_the_faster(formula, preset, search):
    rivals = formula("rivals")
    settings = read_tuner({"preset": preset, "n_confirm": 0, "min_gain": None, "explorer": search})
    trials = Session(rivals, settings, 128).run().trials
    best = min((trial for trial in trials if trial.gflops), key=lambda trial: trial.measurement.latency_s)
    assert best.config[ALGORITHM] == "winograd" and set(best.config) == {ALGORITHM, "tile_size", "tile_p"}
    assert len(trials) == len(set(configs(trials))) == 128


def test_similar_tasks_lead_half_of_the_first_batch_and_no_other(bowl):
    """They praise wide tiles of filters, which are not the best here."""
    space = bowl.space

    def widths(vectors):
        return np.log2(space.columns(vectors)["tile_f"][:, 3])

    vectors = space.sample(400, np.random.default_rng(0))
    prior = Examples(space.features(vectors), widths(vectors) / 7)
    trials = Session(bowl, replace(BRISK["autotvm"], batch=9), 27, prior=prior).run().trials
    found = widths(space.vectors_of(trial.config for trial in trials))
    assert found[:5].min() >= 6 and found[5:9].mean() < 4 and found[9:].mean() < 5
    assert len(set(configs(trials))) == 27


def test_the_rest_of_a_led_batch_begins_as_the_explorer_would(bowl):
    space = bowl.space

    def merit(columns):
        return columns["tile_x"][:, 3]

    bowl = replace(bowl, space=replace(space, merit=merit))
    vectors = space.sample(400, np.random.default_rng(0))
    prior = Examples(space.features(vectors), np.log2(space.columns(vectors)["tile_f"][:, 3]) / 7)
    settings = replace(BRISK["autotvm"], explorer=GuidedAnnealing(n_steps=20, led_share=1.0), batch=8)
    trials = Session(bowl, settings, 8, prior=prior).run().trials
    found = merit(space.columns(space.vectors_of(trial.config for trial in trials)))
    assert found[4:].tolist() == [56, 28, 14, 8]


def test_trials_are_numbered_timed_and_valid(bowl, settings):
    session = Session(bowl, settings, 20).run()
    trials = session.trials
    assert [trial.number for trial in trials] == list(range(20))
    assert [trial.iteration for trial in trials] == [number // 6 for number in range(20)]
    assert len(set(configs(trials))) == 20
    assert all(bowl.space.rejection(trial.config) is None for trial in trials)
    elapsed_s = [trial.elapsed_s for trial in trials]
    assert elapsed_s == sorted(elapsed_s) and elapsed_s[0] > 0
    for trial in Session(bowl, settings, 48).run().trials:
        latency_s = trial.measurement.latency_s
        assert trial.gflops == (None if latency_s is None else bowl.flop / latency_s / 1e9)


def test_a_trial_is_handed_out_before_the_next_is_measured(bowl, settings):
    events = []

    def measure(batch):
        for measurement in bowl.measure(batch):
            events.append("measured")
            yield measurement

    search = Search(Subject(bowl.space, bowl.flop, "task"), settings, seed=0)
    tune(search, measure, 8, Watch(trial=lambda _: events.append("stored")))
    assert events == ["measured", "stored"] * 8


def test_seed_and_task_decide_and_nothing_else(bowl, settings):
    runs = {}
    for name, seed, task_key in (("first", 1, "a"), ("again", 1, "a"), ("seed", 2, "a"), ("task", 1, "b")):
        np.random.seed(len(runs))
        session = Session(bowl, settings, 20, seed=seed, task_key=task_key).run()
        runs[name] = outcome(session.trials)
    assert runs["first"] == runs["again"]
    assert len({str(runs[name]) for name in ("first", "seed", "task")}) == 3


@pytest.mark.examples(14)
@pytest.mark.parametrize("n_recorded", range(21))
def test_a_run_cut_off_anywhere_goes_on_as_if_it_had_not_been(bowl, settings, n_recorded):
    whole = uninterrupted(settings)
    resumed = Session(bowl, settings, 20, recorded=whole[:n_recorded]).run()
    assert outcome(resumed.trials) == outcome(whole)
    assert len(bowl.asked) == len(resumed.fresh) == 20 - n_recorded


def killed_after(n, measure):
    """Measure n configs and no more; return that, and the configs that it measured."""
    measured = []

    def measure_some(batch):
        for config, measurement in zip(batch, measure(batch), strict=True):
            if len(measured) >= n:
                raise KeyboardInterrupt
            measured.append(canonical_json(config))
            yield measurement

    return measure_some, measured


def test_a_run_killed_again_and_again_loses_nothing_and_measures_nothing_twice(bowl, settings):
    whole = uninterrupted(settings)
    recorded, all_measured = [], []
    for survives in (0, 4, 1, 7, 3):
        measure, measured = killed_after(survives, bowl.measure)
        session = Session(bowl, settings, 20, recorded=recorded, measure=measure)
        with pytest.raises(KeyboardInterrupt):
            session.run()
        recorded = session.trials
        all_measured += measured
    last = Session(bowl, settings, 20, recorded=recorded).run()
    all_measured += configs(last.fresh)
    assert outcome(last.trials) == outcome(whole)
    assert all_measured == configs(whole)


def test_proposals_that_changed_still_fill_up_what_was_cut_off(bowl, settings):
    """As after an upgrade: the recorded configs are none that would be proposed now."""
    other = Session(bowl, settings, 10, seed=99).run()
    session = Session(bowl, settings, 20, seed=0, recorded=other.trials).run()
    assert outcome(session.trials)[:10] == outcome(other.trials)
    assert [trial.iteration for trial in session.trials] == [number // 6 for number in range(20)]
    assert len(set(configs(session.trials))) == 20 and len(bowl.asked) == 10


@pytest.mark.parametrize("lost", [{3}, {6, 7, 8, 9, 10, 11}, {0, 1, 2, 3, 4, 5, 19}])
def test_a_hole_in_the_record_is_made_up_for_at_the_end(bowl, settings, lost):
    """As after corrupt lines of a shard: only the last iteration is filled up, the past is left as it is."""
    whole = uninterrupted(settings)
    holed = [trial for trial in whole if trial.number not in lost]
    session = Session(bowl, settings, 24, recorded=holed).run()
    assert len(session.trials) == 24 and min(trial.iteration for trial in session.fresh) == 3
    numbers = [trial.number for trial in session.trials]
    assert len(set(numbers)) == 24 and len(set(configs(session.trials))) == 24


def test_the_clock_goes_on_where_it_stopped(bowl, settings):
    first = Session(bowl, settings, 9).run()
    late = [replace(trial, elapsed_s=100.0 + trial.number) for trial in first.trials]
    second = Session(bowl, settings, 20, recorded=late).run()
    elapsed_s = [trial.elapsed_s for trial in second.fresh]
    assert 108.0 < elapsed_s[0] and elapsed_s == sorted(elapsed_s) and elapsed_s[-1] < 118.0


def test_a_run_where_all_fails_ends_without_a_best(bowl, settings):
    broken = [Measurement(status) for status in Status if status is not Status.OK]
    session = Session(bowl, settings, 18, measure=lambda batch: broken[: len(batch)]).run()
    assert session.best is None
    assert len(session.trials) == 18 and {t.measurement.status for t in session.trials} == {m.status for m in broken}


def test_a_space_is_measured_to_its_end_and_no_further(formula, settings):
    small = formula("handful")
    session = Session(small, settings, 50).run()
    assert len(session.trials) == len(set(configs(session.trials))) == len(small.space.valid_indices)
    assert session.best.measurement.latency_s == small.optimum_s
    again = Session(small, settings, 60, recorded=session.trials).run()
    assert small.asked == []
    assert again.best == session.best
    again = Session(small, settings, 60, recorded=session.trials[:7]).run()
    assert len(small.asked) == 1


@pytest.mark.examples(1)
@pytest.mark.parametrize("preset", PRESETS)
def test_no_program_costs_two_trials(preset):
    """A size makes no difference, so that there are 48 programs of 384 configs."""
    knobs = [option_knob("size", list(range(8))), option_knob("x", list(range(8))), option_knob("y", list(range(6)))]
    space = Space(knobs, programs=lambda columns: np.stack([columns["x"], columns["y"]], axis=1))

    def measure(configs):
        for config in configs:
            yield Measurement(Status.OK, latency_s=1e-3 * (1 + (config["x"] - 5) ** 2 + config["y"]))

    trials = []
    tuner = replace(PRESETS[preset], min_gain=None)
    tune_in_memory(Subject(space, 1, "task"), tuner, measure, 48, seed=0, watch=Watch(lambda *_: None, trials.append))
    assert len(trials) == len({(trial.config["x"], trial.config["y"]) for trial in trials}) == 48


def test_a_record_of_another_space_is_refused(bowl, settings):
    session = Session(bowl, settings, 2).run()
    foreign = replace(session.trials[0], config={**session.trials[0].config, "tile_rc": [3, 5]})
    with pytest.raises(ConfigError, match="tile_rc"):
        Session(bowl, settings, 5, recorded=[foreign]).run()


def test_a_measurer_that_loses_measurements_is_found_out(bowl, settings):
    with pytest.raises(ValueError):
        Session(bowl, settings, 6, measure=lambda batch: list(bowl.measure(batch))[:-1]).run()


def test_every_iteration_that_measures_leaves_the_figures_of_its_search(bowl, settings):
    logs = {}
    first = Session(bowl, settings, 12, on_iteration=logs.__setitem__).run()
    assert list(logs) == [0, 1]
    assert all(log["search_s"] > 0 for log in logs.values())
    logs.clear()
    Session(bowl, settings, 15, recorded=first.trials, on_iteration=logs.__setitem__).run()
    assert list(logs) == [2]


def test_the_second_batch_of_predictions_is_compared_with_what_was_measured(bowl):
    logs = {}
    settings = replace(BRISK["autotvm"], batch=8)
    Session(bowl, settings, 24, on_iteration=logs.__setitem__).run()
    assert "rank_correlation" not in logs[0] and "rank_correlation" not in logs[1], "the first batch is drawn blindly"
    assert -1 <= logs[2]["rank_correlation"] <= 1


def test_a_search_that_goes_on_by_steps_is_the_one_that_went_in_one_go(bowl, settings):
    whole = uninterrupted(settings, 26)
    search = Search(Subject(bowl.space, bowl.flop, "task"), settings, seed=0)
    for n_trials in (1, 6, 6, 9, 20, 26):
        tune(search, bowl.measure, n_trials)
        assert len(search.trials) == n_trials
    assert outcome(search.trials) == outcome(whole)


def test_the_gain_is_expected_from_the_trials_of_whole_batches(bowl):
    search = Search(Subject(bowl.space, bowl.flop, "task"), BRISK["random"], seed=0)
    assert search.expected_gain == 1.0
    for n_trials in range(6, 60, 6):
        tune(search, bowl.measure, n_trials)
        gflops = np.array([trial.gflops or 0.0 for trial in search.trials])
        gain = search.expected_gain
        assert gain == pytest.approx(expected_gain(gflops, 6))
        tune(search, bowl.measure, n_trials + 3)
        assert search.expected_gain == gain


def test_a_search_stops_when_little_is_to_be_gained_and_says_so(bowl, caplog):
    caplog.set_level("INFO")
    settings = replace(BRISK["autotvm"], min_gain=0.02)
    session = Session(bowl, settings, 600).run()
    n_trials = len(session.trials)
    assert 36 <= n_trials < 600 and n_trials % 6 == 0
    assert f"converged after {n_trials} trials" in caplog.text
    assert session.best.measurement.latency_s < 1.5 * bowl.optimum_s
    again = Session(bowl, settings, 600, recorded=session.trials).run()
    assert again.fresh == [] and again.best == session.best
    cut = Session(bowl, settings, 600, recorded=session.trials[:20]).run()
    assert outcome(cut.trials) == outcome(session.trials)


def test_a_search_stops_after_its_most_iterations_and_a_cut_one_ends_alike(bowl):
    settings = replace(BRISK["autotvm"], max_iterations=3)
    session = Session(bowl, settings, 600).run()
    assert len(session.trials) == 18 and {trial.iteration for trial in session.trials} == {0, 1, 2}
    cut = Session(bowl, settings, 14).run()
    resumed = Session(bowl, settings, 600, recorded=cut.trials).run()
    assert outcome(resumed.trials) == outcome(session.trials)
    free = Session(bowl, BRISK["autotvm"], 18).run()
    assert outcome(free.trials) == outcome(session.trials)


def test_what_never_works_is_given_up_where_gain_is_asked_for(bowl):
    def fail(batch):
        return [Measurement(Status.RUN_ERROR, "no luck") for _ in batch]

    session = Session(bowl, replace(BRISK["random"], min_gain=0.02), 600, measure=fail).run()
    assert session.best is None and len(session.trials) == 36
