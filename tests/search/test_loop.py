"""The search loop, on formulas: its results, and that no measurement is lost or repeated."""

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

QUICK = {
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
"""Presets with short searches, for tests of the loop itself."""


class Session:
    """A tuning process, with the trials that it measured and stored."""

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
        self.trials.append(decode(Trial, json.loads(json.dumps(encode(trial)))))  # as if read from a file

    def run(self):
        self.best = self._tune()
        return self


def outcome(trials):
    """Return all of a trial that must not depend on interruptions: everything except the times."""
    return [(t.number, t.iteration, canonical_json(dict(t.config)), t.measurement) for t in trials]


def configs(trials):
    return [canonical_json(dict(trial.config)) for trial in trials]


@pytest.fixture(params=QUICK)
def settings(request):
    return QUICK[request.param]


@cache
def uninterrupted(settings, n_trials=20):
    """Return the trials of an uninterrupted run on a bowl."""
    return tuple(Session(formulas.bowl(), settings, n_trials).run().trials)


@pytest.mark.guard
def test_autotvm_beats_random_search(bowl):
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
def test_every_tuner_chooses_the_faster_algorithm(formula, preset, search):
    rivals = formula("rivals")
    settings = read_tuner({"preset": preset, "n_confirm": 0, "min_gain": None, "explorer": search})
    trials = Session(rivals, settings, 128).run().trials
    best = min((trial for trial in trials if trial.gflops), key=lambda trial: trial.measurement.latency_s)
    assert best.config[ALGORITHM] == "winograd" and set(best.config) == {ALGORITHM, "tile_size", "tile_p"}
    assert len(trials) == len(set(configs(trials))) == 128


def test_similar_tasks_guide_only_half_of_the_first_batch(bowl):
    """Similar tasks prefer wide tiles of filters, which are not the best here."""
    space = bowl.space

    def widths(vectors):
        return np.log2(space.columns(vectors)["tile_f"][:, 3])

    vectors = space.sample(400, np.random.default_rng(0))
    prior = Examples(space.features(vectors), widths(vectors) / 7)
    trials = Session(bowl, replace(QUICK["autotvm"], batch=9), 27, prior=prior).run().trials
    found = widths(space.vectors_of(trial.config for trial in trials))
    assert found[:5].min() >= 6 and found[5:9].mean() < 4 and found[9:].mean() < 5
    assert len(set(configs(trials))) == 27


def test_the_unguided_half_of_a_batch_is_the_explorers(bowl):
    space = bowl.space

    def merit(columns):
        return columns["tile_x"][:, 3]

    bowl = replace(bowl, space=replace(space, merit=merit))
    vectors = space.sample(400, np.random.default_rng(0))
    prior = Examples(space.features(vectors), np.log2(space.columns(vectors)["tile_f"][:, 3]) / 7)
    settings = replace(QUICK["autotvm"], explorer=GuidedAnnealing(n_steps=20, led_share=1.0), batch=8)
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


def test_a_trial_is_stored_before_the_next_measurement(bowl, settings):
    events = []

    def measure(batch):
        for measurement in bowl.measure(batch):
            events.append("measured")
            yield measurement

    search = Search(Subject(bowl.space, bowl.flop, "task"), settings, seed=0)
    tune(search, measure, 8, Watch(trial=lambda _: events.append("stored")))
    assert events == ["measured", "stored"] * 8


def test_trials_depend_only_on_seed_and_task(bowl, settings):
    runs = {}
    for name, seed, task_key in (("first", 1, "a"), ("again", 1, "a"), ("seed", 2, "a"), ("task", 1, "b")):
        np.random.seed(len(runs))
        session = Session(bowl, settings, 20, seed=seed, task_key=task_key).run()
        runs[name] = outcome(session.trials)
    assert runs["first"] == runs["again"]
    assert len({str(runs[name]) for name in ("first", "seed", "task")}) == 3


@pytest.mark.examples(14)
@pytest.mark.parametrize("n_recorded", range(21))
def test_an_interrupted_run_resumes_with_the_same_trials(bowl, settings, n_recorded):
    uninterrupted_trials = uninterrupted(settings)
    resumed = Session(bowl, settings, 20, recorded=uninterrupted_trials[:n_recorded]).run()
    assert outcome(resumed.trials) == outcome(uninterrupted_trials)
    assert len(bowl.asked) == len(resumed.fresh) == 20 - n_recorded


def kill_after(n, measure):
    """Return a function that measures n configs and is then interrupted, and the list of measured configs."""
    measured = []

    def measure_some(batch):
        for config, measurement in zip(batch, measure(batch), strict=True):
            if len(measured) >= n:
                raise KeyboardInterrupt
            measured.append(canonical_json(config))
            yield measurement

    return measure_some, measured


def test_a_repeatedly_killed_run_loses_and_repeats_no_measurement(bowl, settings):
    uninterrupted_trials = uninterrupted(settings)
    recorded, all_measured = [], []
    for survives in (0, 4, 1, 7, 3):
        measure, measured = kill_after(survives, bowl.measure)
        session = Session(bowl, settings, 20, recorded=recorded, measure=measure)
        with pytest.raises(KeyboardInterrupt):
            session.run()
        recorded = session.trials
        all_measured += measured
    last = Session(bowl, settings, 20, recorded=recorded).run()
    all_measured += configs(last.fresh)
    assert outcome(last.trials) == outcome(uninterrupted_trials)
    assert all_measured == configs(uninterrupted_trials)


def test_changed_proposals_complete_an_interrupted_batch(bowl, settings):
    """After an upgrade, the recorded configs may not be proposed any more."""
    other = Session(bowl, settings, 10, seed=99).run()
    session = Session(bowl, settings, 20, seed=0, recorded=other.trials).run()
    assert outcome(session.trials)[:10] == outcome(other.trials)
    assert [trial.iteration for trial in session.trials] == [number // 6 for number in range(20)]
    assert len(set(configs(session.trials))) == 20 and len(bowl.asked) == 10


@pytest.mark.parametrize("lost", [{3}, {6, 7, 8, 9, 10, 11}, {0, 1, 2, 3, 4, 5, 19}])
def test_missing_records_are_replaced_in_the_last_iteration(bowl, settings, lost):
    """Corrupt lines of a shard are missing: only the last iteration is completed; earlier ones stay as they are."""
    uninterrupted_trials = uninterrupted(settings)
    holed = [trial for trial in uninterrupted_trials if trial.number not in lost]
    session = Session(bowl, settings, 24, recorded=holed).run()
    assert len(session.trials) == 24 and min(trial.iteration for trial in session.fresh) == 3
    numbers = [trial.number for trial in session.trials]
    assert len(set(numbers)) == 24 and len(set(configs(session.trials))) == 24


def test_elapsed_time_continues_after_an_interruption(bowl, settings):
    first = Session(bowl, settings, 9).run()
    late = [replace(trial, elapsed_s=100.0 + trial.number) for trial in first.trials]
    second = Session(bowl, settings, 20, recorded=late).run()
    elapsed_s = [trial.elapsed_s for trial in second.fresh]
    assert 108.0 < elapsed_s[0] and elapsed_s == sorted(elapsed_s) and elapsed_s[-1] < 118.0


def test_a_run_with_only_failures_has_no_best(bowl, settings):
    broken = [Measurement(status) for status in Status if status is not Status.OK]
    session = Session(bowl, settings, 18, measure=lambda batch: broken[: len(batch)]).run()
    assert session.best is None
    assert len(session.trials) == 18 and {t.measurement.status for t in session.trials} == {m.status for m in broken}


def test_a_space_is_measured_until_it_is_exhausted(formula, settings):
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
def test_no_program_is_measured_twice(preset):
    """The knob `size` makes no difference: 384 configs have 48 programs."""
    knobs = [option_knob("size", list(range(8))), option_knob("x", list(range(8))), option_knob("y", list(range(6)))]
    space = Space(knobs, programs=lambda columns: np.stack([columns["x"], columns["y"]], axis=1))

    def measure(configs):
        for config in configs:
            yield Measurement(Status.OK, latency_s=1e-3 * (1 + (config["x"] - 5) ** 2 + config["y"]))

    trials = []
    tuner = replace(PRESETS[preset], min_gain=None)
    tune_in_memory(Subject(space, 1, "task"), tuner, measure, 48, seed=0, watch=Watch(lambda *_: None, trials.append))
    assert len(trials) == len({(trial.config["x"], trial.config["y"]) for trial in trials}) == 48


def test_a_record_from_another_space_is_rejected(bowl, settings):
    session = Session(bowl, settings, 2).run()
    foreign = replace(session.trials[0], config={**session.trials[0].config, "tile_rc": [3, 5]})
    with pytest.raises(ConfigError, match="tile_rc"):
        Session(bowl, settings, 5, recorded=[foreign]).run()


def test_a_missing_measurement_raises_an_error(bowl, settings):
    with pytest.raises(ValueError):
        Session(bowl, settings, 6, measure=lambda batch: list(bowl.measure(batch))[:-1]).run()


def test_every_measuring_iteration_logs_its_search(bowl, settings):
    logs = {}
    first = Session(bowl, settings, 12, on_iteration=logs.__setitem__).run()
    assert list(logs) == [0, 1]
    assert all(log["search_s"] > 0 for log in logs.values())
    logs.clear()
    Session(bowl, settings, 15, recorded=first.trials, on_iteration=logs.__setitem__).run()
    assert list(logs) == [2]


def test_the_rank_correlation_is_logged_from_the_third_batch(bowl):
    logs = {}
    settings = replace(QUICK["autotvm"], batch=8)
    Session(bowl, settings, 24, on_iteration=logs.__setitem__).run()
    assert "rank_correlation" not in logs[0] and "rank_correlation" not in logs[1], "the first batch is random"
    assert -1 <= logs[2]["rank_correlation"] <= 1


def test_raising_the_budget_in_steps_gives_the_same_trials(bowl, settings):
    uninterrupted_trials = uninterrupted(settings, 26)
    search = Search(Subject(bowl.space, bowl.flop, "task"), settings, seed=0)
    for n_trials in (1, 6, 6, 9, 20, 26):
        tune(search, bowl.measure, n_trials)
        assert len(search.trials) == n_trials
    assert outcome(search.trials) == outcome(uninterrupted_trials)


def test_the_expected_gain_is_updated_by_complete_batches_only(bowl):
    search = Search(Subject(bowl.space, bowl.flop, "task"), QUICK["random"], seed=0)
    assert search.expected_gain == 1.0
    for n_trials in range(6, 60, 6):
        tune(search, bowl.measure, n_trials)
        gflops = np.array([trial.gflops or 0.0 for trial in search.trials])
        gain = search.expected_gain
        assert gain == pytest.approx(expected_gain(gflops, 6))
        tune(search, bowl.measure, n_trials + 3)
        assert search.expected_gain == gain


def test_a_converged_search_stops_and_logs_it(bowl, caplog):
    caplog.set_level("INFO")
    settings = replace(QUICK["autotvm"], min_gain=0.02)
    session = Session(bowl, settings, 600).run()
    n_trials = len(session.trials)
    assert 36 <= n_trials < 600 and n_trials % 6 == 0
    assert f"converged after {n_trials} trials" in caplog.text
    assert session.best.measurement.latency_s < 1.5 * bowl.optimum_s
    again = Session(bowl, settings, 600, recorded=session.trials).run()
    assert again.fresh == [] and again.best == session.best
    cut = Session(bowl, settings, 600, recorded=session.trials[:20]).run()
    assert outcome(cut.trials) == outcome(session.trials)


@pytest.mark.parametrize(("options", "size"), [({}, 8), ({"batch": 6}, 6), ({"batch_without_merit": 4}, 4)])
@pytest.mark.parametrize("learns", [False, True])
def test_batches_are_smaller_in_a_space_without_merit(bowl, options, size, learns):
    vectors = bowl.space.sample(64, np.random.default_rng(0))
    prior = Examples(bowl.space.features(vectors), np.linspace(0, 1, 64)) if learns else None
    settings = read_tuner({"preset": "anole", "explorer": "random", "surrogate": "boosted_trees", **options})
    trials = Session(bowl, settings, 12, prior=prior).run().trials
    assert [trial.iteration for trial in trials] == [number // size for number in range(12)]
    merited = replace(bowl.space, merit=lambda columns: np.ones(len(columns["tile_f"])))
    assert settings.batch_in(merited) == settings.trials_ahead(merited) == options.get("batch", 16)
    assert settings.trials_ahead(bowl.space) == 24


def test_without_merit_a_search_ends_only_after_96_trials(bowl):
    assert len(Session(bowl, replace(QUICK["random"], min_gain=0.9), 600).run().trials) == 96


def test_a_search_stops_after_max_iterations_even_if_interrupted(bowl):
    settings = replace(QUICK["autotvm"], max_iterations=3)
    session = Session(bowl, settings, 600).run()
    assert len(session.trials) == 18 and {trial.iteration for trial in session.trials} == {0, 1, 2}
    cut = Session(bowl, settings, 14).run()
    resumed = Session(bowl, settings, 600, recorded=cut.trials).run()
    assert outcome(resumed.trials) == outcome(session.trials)
    free = Session(bowl, QUICK["autotvm"], 18).run()
    assert outcome(free.trials) == outcome(session.trials)


def test_a_search_with_only_failures_stops_if_min_gain_is_set(bowl):
    failure = Measurement(Status.RUN_ERROR, "no luck")
    settings = replace(QUICK["random"], min_gain=0.02)
    session = Session(bowl, settings, 600, measure=lambda batch: [failure] * len(batch)).run()
    # Each 24 failures halve the expected gain; 138 is the first multiple of 6 after 24 log2(1 / 0.02) = 135.5.
    assert session.best is None and len(session.trials) == 138
