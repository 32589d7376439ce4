"""Statistics of comparisons, against SciPy: intervals, one-sided tests, equivalence; pairing, Holm's correction."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.search.evidence import effect, holm, log_ratios


def lines(values):
    return [
        {"variant": variant, "layer": layer, "seed": str(seed), "trials": str(value)}
        for (variant, layer, seed), value in values.items()
    ]


def test_ratios_are_paired_by_layer_and_seed():
    values = {("a", layer, seed): 2 * (seed + 1) * scale for layer, scale in (("x", 1), ("y", 50)) for seed in range(3)}
    values |= {("b", layer, seed): value / 2 for (_, layer, seed), value in values.items()}
    found = log_ratios(lines({**values, ("a", "z", 0): 7.0, ("b", "y", 9): ""}), "a", "b", "trials")
    assert len(found) == 6 and list(found.values()) == pytest.approx(6 * [np.log(2)])


def test_missing_or_infinite_values_make_no_pair():
    values = {("a", "x", 0): "", ("b", "x", 0): 5, ("a", "x", 1): 10, ("b", "x", 1): 5}
    found = effect(log_ratios(lines(values), "a", "b", "trials"))
    assert found is not None and found.n == 1 and found.value == pytest.approx(2.0)


def logs_of(rng, truth, n_blocks=8, n_seeds=3):
    """Return random logarithms with more variance between blocks than between seeds."""
    blocks = rng.normal(truth, 0.1, size=n_blocks)
    return {
        (str(at), str(seed)): value + rng.normal(0, 0.02) for at, value in enumerate(blocks) for seed in range(n_seeds)
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bound", [0.98, 1.0, 1.02, 1.135])
def test_one_sided_p_values_and_intervals_match_scipy(seed, bound):
    logs = logs_of(np.random.default_rng(seed), 0.05, n_blocks=6 + seed)
    means = [np.mean([value for (block, _), value in logs.items() if block == str(at)]) for at in range(6 + seed)]
    found = effect(logs)

    def p(alternative, popmean):
        return stats.ttest_1samp(means, popmean, alternative=alternative).pvalue

    assert found.p_above(bound) == pytest.approx(p("greater", np.log(bound)))
    assert found.p_below(bound) == pytest.approx(p("less", np.log(bound)))
    assert found.p_differs(bound) == pytest.approx(p("two-sided", np.log(bound)))
    assert found.p_apart == pytest.approx(max(p("greater", -np.log(1.02)), p("less", np.log(1.02))))
    interval = stats.ttest_1samp(means, 0.0).confidence_interval(0.95)
    assert np.log([found.low, found.high]) == pytest.approx([interval.low, interval.high])


def test_student_intervals_have_nominal_coverage():
    rng = np.random.default_rng(0)
    found = [effect(logs_of(rng, 0.2)) for _ in range(400)]
    held = np.mean([each.low <= np.exp(0.2) <= each.high for each in found])
    assert 0.92 < held < 0.98
    assert np.mean([each.p_differs(np.exp(0.2)) < 0.05 for each in found]) == pytest.approx(1 - held)


def test_more_seeds_of_a_block_do_not_narrow_the_interval():
    one = {(str(at), "0"): value for at, value in enumerate([0.1, 0.2, 0.0, 0.3, 0.1])}
    many = {(block, str(seed)): value for (block, _), value in one.items() for seed in range(50)}
    first, second = effect(one), effect(many)
    assert (first.low, first.high, first.error) == pytest.approx((second.low, second.high, second.error))
    assert (first.n, second.n, second.blocks) == (5, 250, 5)


@pytest.mark.parametrize(
    ("n_blocks", "n_seeds", "settled"), [(1, 9, False), (2, 9, False), (4, 1, False), (5, 1, True)]
)
def test_few_blocks_or_pairs_decide_nothing(n_blocks, n_seeds, settled):
    found = effect(logs_of(np.random.default_rng(1), 3.0, n_blocks, n_seeds))
    assert (found.low is not None) == settled == (found.p_above(1) < 0.05)


def test_constant_values_have_no_interval():
    found = effect({(str(at), "0"): np.log(4.0) for at in range(9)})
    assert (found.value, found.low, found.p_above(1)) == (pytest.approx(4.0), None, 1.0)
    assert effect({}) is None


def test_p_values_are_corrected_for_their_number():
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([0.6, 0.6]) == [1.0, 1.0] and holm([]) == []


@pytest.mark.parametrize(("truth", "spread", "equivalent"), [(0.0, 0.01, True), (0.0, 0.1, False), (0.05, 0.01, False)])
def test_equivalence_needs_an_interval_within_the_margin(truth, spread, equivalent):
    rng = np.random.default_rng(2)
    logs = {(str(block), "0"): truth + spread * rng.standard_normal() for block in range(11)}
    assert (effect(logs).p_apart < 0.05) == equivalent


def test_equal_values_are_equivalent_if_there_are_enough():
    equal = {(str(block), "0"): 0.0 for block in range(8)}
    assert (effect(equal).p_differs(), effect(equal).p_apart) == (1.0, 0.0)
    assert effect({("a", "0"): 0.0, ("b", "0"): 0.0}).p_apart == 1.0


def test_equivalence_test_has_its_nominal_error_rate():
    rng = np.random.default_rng(0)
    apart = ({(str(at), "0"): np.log(1.02) + 0.01 * rng.standard_normal() for at in range(11)} for _ in range(600))
    assert 0.02 < np.mean([effect(logs).p_apart < 0.05 for logs in apart]) < 0.08
