"""Pretrained parts: they propose before the first trial, are corrected by trials, and know which task they are on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from anole.record import Measurement, Status
from anole.search.presets import PRESETS
from anole.search.roles import History
from anole.search.state import Subject
from anole.search.watch import Watch
from anole.space import Space, option_knob
from anole.targets.vta.templates import design
from anole.testing.in_memory import tune_in_memory
from benchmarks.accelerator.tables import LAYERS
from benchmarks.search import learned_report as pretrained_report
from benchmarks.search import sources as pretrained_sources
from benchmarks.search.pretrained import Context, PretrainedPPO, PretrainedTrees, SpeedModel, train_policy

from ..tiny_builds import HOME

SPACE = Space([option_knob(name, list(range(16))) for name in ("a", "b")])
FLOP = 10**9


def speeds_at(vectors, peak):
    """Speeds that fall with the distance from a peak."""
    return 100.0 / (1 + np.abs(vectors - np.asarray(peak)).sum(axis=1))


def trees_of(peak, **settings):
    return PretrainedTrees(predict=lambda vectors: speeds_at(vectors, peak), **settings)


def trials_of(settings, peak, n_trials):
    """Returns the configs that a search measures, in a space whose fastest config is the peak."""

    def measure(configs):
        for config in configs:
            speed = speeds_at(SPACE.vector(config)[None, :], peak)[0]
            yield Measurement(Status.OK, latency_s=FLOP / speed / 1e9)

    found = []
    watch = Watch(trial=found.append)
    tune_in_memory(Subject(SPACE, FLOP, "task"), settings, measure, n_trials, seed=0, watch=watch)
    return [SPACE.vector(trial.config).tolist() for trial in found]


def history_of(vectors, peak):
    history = History(SPACE, FLOP)
    history.add(vectors, [Measurement(Status.OK, latency_s=FLOP / s / 1e9) for s in speeds_at(vectors, peak)])
    return history


def test_the_first_trial_is_what_the_model_likes_best():
    settings = replace(PRESETS["anole"], min_gain=None, warm_start=False, batch=4, surrogate=trees_of((3, 12)))
    assert trials_of(settings, (3, 12), 4)[0] == [3, 12]
    # Without the model, the first four of 256 configs do not hold it.
    assert [3, 12] not in trials_of(replace(settings, surrogate=PRESETS["anole"].surrogate), (3, 12), 4)


@pytest.mark.parametrize("learns", [True, False])
def test_own_trials_correct_a_model_that_misleads(learns):
    surrogate = trees_of((0, 0), learns=learns).start(SPACE)
    everything = SPACE.vectors(np.arange(SPACE.size))
    surrogate.fit(history_of(everything[::2], peak=(15, 15)))
    fastest = everything[np.argmax(surrogate.score(everything))]
    assert (np.abs(fastest - 15).sum() <= 2) == learns
    assert (np.abs(fastest).sum() == 0) != learns


def test_a_factor_that_the_model_misses_changes_no_order():
    surrogate = trees_of((4, 4)).start(SPACE)
    everything = SPACE.vectors(np.arange(SPACE.size))
    before = surrogate.score(everything)
    history = history_of(everything[::5], peak=(4, 4))
    history.gflops *= 7.0
    surrogate.fit(history)
    assert spearmanr(before, surrogate.score(everything))[0] > 0.95
    assert surrogate.score(everything).max() == pytest.approx(100 * 7 / history.best_gflops, rel=0.1)


def test_the_speed_of_what_fails_is_expected_to_be_low():
    rng = np.random.default_rng(0)
    features = rng.random((400, 2), dtype=np.float32)
    fails = features[:, 0] > 0.5
    model = SpeedModel(features, np.where(fails, np.nan, 3 * features[:, 1]))
    predicted = model(features)
    assert predicted[fails].max() < 0.2 * predicted[~fails].min()
    assert spearmanr(predicted[~fails], features[~fails, 1])[0] > 0.95


def test_nothing_is_learned_from_a_layer_that_is_searched():
    def shape(layer):
        return replace(layer, batch=1)

    assert not set(map(shape, pretrained_sources.SOURCES)) & set(map(shape, LAYERS))


@pytest.mark.parametrize("kind", ["constrained", "open"])
def test_only_features_of_a_constrained_space_know_what_can_be_run(kind, monkeypatch):
    asked = []
    monkeypatch.setattr(pretrained_sources, "tiles_of", lambda *given: asked.append(1) or design.tiles_of(*given))
    trials = pretrained_sources.source_trials(kind)[0]
    features = pretrained_sources.relative(trials.layer, trials.columns, kind=kind)
    assert np.isfinite(features).all()
    assert len(features) == len(trials.latencies_s)
    assert bool(asked) == (kind == "constrained")


def test_the_roofline_orders_trials_by_their_latency():
    for trials in pretrained_sources.source_trials("constrained")[::6]:
        works = ~np.isnan(trials.latencies_s)
        roofline_s = pretrained_sources.roofline_s(trials.layer, trials.columns)
        assert spearmanr(roofline_s[works], trials.latencies_s[works])[0] > 0.7


@pytest.mark.slow
def test_one_policy_walks_to_where_each_task_is_fast():
    tasks = [
        (SPACE, [number], lambda v, peak=peak: speeds_at(v, peak)) for number, peak in ((-1, (0, 0)), (1, (15, 15)))
    ]
    settings = PretrainedPPO(n_episodes=32, horizon=25, converged_share=None, learning_rate=3e-3, n_candidates=1)
    weights = train_policy(settings, tasks, 20, np.random.default_rng(0))
    for _, numbers, predict in tasks:
        surrogate = PRESETS["random"].surrogate.start(SPACE)
        explorer = replace(settings, context=Context(numbers, weights)).start(SPACE)
        first = explorer.propose(surrogate, History(SPACE, FLOP), np.random.default_rng(1)).vectors[:1]
        assert predict(first)[0] > 15, numbers


def test_the_page_quotes_the_figures_of_its_file(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["", str(HOME / "docs/results/data/search/pretrained.csv")])
    pretrained_report.main()
    constrained, opened = capsys.readouterr().out.split("\nopen\n")

    def quoted(table, *names):
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        length = len(names) + (6 if len(names) == 1 else 4)
        (figures,) = [line[len(names) :] for line in lines if len(line) == length and line[: len(names)] == [*names]]
        return f"| {figures[0]} | {figures[3]} |"

    page = " ".join((HOME / "docs/results/search.md").read_text(encoding="utf-8").split())
    shown = [quoted(constrained, name) for name in ("warm start", "pretrained", "merit as margin")]
    shown += [quoted(constrained, "pretrained on merit"), quoted(constrained, "pretrained on merit", "merit as margin")]
    shown += [quoted(constrained, "wrong merit as margin"), quoted(opened, "pretrained"), quoted(opened, "warm start")]
    shown += [quoted(constrained, "policy", "PPO").split("| ")[2].rstrip(") |").replace(" (", ", ")]
    assert [figure for figure in shown if figure not in page] == []
