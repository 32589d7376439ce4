"""Tables that compare the search methods: networks, exact tables, the price of a trial, live layers."""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks.common.rows import Row, line
from benchmarks.search.evidence import ALPHA, Effect, Rows, effect, holm, log_ratios
from benchmarks.search.exact import held_out
from benchmarks.search.figures import cost_at, whole_batches

Data = Mapping[str, Rows]
"""The rows of each experiment by name, and those in one kind of space by both names, such as ``tables/open``."""

PRICES_S = (0.01, 0.1, 1.0, 60.0)
"""Possible costs of a trial in seconds: our simulator, a processor, the papers' boards, hardware synthesis."""

_SPACES = {
    "constrained": "Whole constrained spaces of the accelerator",
    "open": "Whole open spaces of the accelerator",
    "gpu": "Spaces of two kernels on six GPUs",
}
"""The titles of the kinds of spaces with exact tables."""

_CONTROLS = (
    *("PPO+diverse", "PPO+greedy sizes of AS", "SA+greedy sizes of AS", "dcoc batch 16", "dcoc, 64 of 64"),
    *("SA+AS to 256", "SA+AS as published", "chameleon, random share", "chameleon, none random", "dcoc as printed"),
    *("perfect+greedy", "perfect+greedy batch 16", "chameleon not learning", "dcoc not learning"),
    *("release not learning", "autotvm, knobs alone", "GP+CSA", "XGB+SA batch 32"),
)
"""Variants that serve a single comparison; the tables count them, but do not list them."""

BY_TRIALS = (
    ("adaptive sampling over AutoTVM's choice, with annealing", "SA+AS to 256", "autotvm"),
    ("adaptive sampling over AutoTVM's choice, with PPO", "chameleon to 256", "PPO+diverse"),
    ("AutoTVM in batches of 16 over batches of 64", "SA+diverse batch 16", "autotvm"),
    ("adaptive sampling over greedy selection of the same sizes, with annealing", "SA+AS", "SA+greedy sizes of AS"),
    ("adaptive sampling over greedy selection of the same sizes, with PPO", "chameleon", "PPO+greedy sizes of AS"),
    ("AutoTVM with the description of work and buffers over knobs alone", "autotvm", "autotvm, knobs alone"),
    ("AdaTune over AutoTVM's parts in batches of 32", "adatune", "XGB+SA batch 32"),
    ("DCOC over Chameleon", "dcoc", "chameleon to 256"),
    ("`chameleon` over `chameleon` that does not learn", "chameleon", "chameleon not learning"),
    ("`release` over `release` that does not learn", "release", "release not learning"),
    ("`dcoc` over `dcoc` that does not learn", "dcoc", "dcoc not learning"),
)
"""Comparisons whose outcome depends on the number of trials: title, variant and baseline."""

SAMPLED = ("chameleon", "chameleon as published")
"""The variants with adaptive sampling whose batches are listed."""

_MIN_SHARE = 0.2
"""A table lists a variant that has more than this share of the most runs of a variant."""

_OURS = "anole cold"
"""The baseline of other tuners: `anole` as it is on the first layer of a project."""

_BASELINE = "SA+diverse batch 16"
"""The baseline of prices: AutoTVM's parts in batches of 16."""

PRICED = (_OURS, "autotvm", "release", "chameleon", "adatune", "dcoc", "MAPPO+greedy", "random")
"""The variants with prices and costs: the presets, the explorer with the slowest search, and two baselines."""


def sections(data: Data) -> list[str]:
    """Return the sections of all non-empty tables."""
    tables = [_tables(data, *each) for each in _SPACES.items()]
    early = (_by_trials(data), _batches(data), *(_versus_anole(data, n_trials) for n_trials in (64, 256)))
    texts = (_networks(data), *early, *tables, _prices(data), _vta_networks(data), _layers(data), _evaluators(data))
    return [section for section in texts if section]


def _networks(data: Data) -> str:
    """Return the table of the seconds to build each network from scratch, and its latency."""
    timed = {(row["network"], row["engine"]): row for row in data.get("networks_timed", ())}
    rows = []
    for row in data.get("networks_tuned", ()):
        timing = timed.get((row["network"], row["tuner"]), {})
        cells = (row["network"], row["tuner"], f"{float(row['seconds']):.0f}", row["trials"])
        rows.append((*cells, *_latency(timing)))
    for (network, engine), row in timed.items():
        if all((network, engine) != (each["network"], each["tuner"]) for each in data.get("networks_tuned", ())):
            rows.append((network, engine, "", "", *_latency(row)))
    head = ("network", "tuner or engine", "seconds", "trials", "latency (ms)", "vs. the fastest")
    lead = (
        "Each tuner started in an empty project, with one seed. The latencies of a network were measured in turns;"
        " lower is better."
    )
    return _section("From nothing to a network", lead, head, sorted(rows, key=lambda row: (row[0], float(row[5] or 9))))


def _by_trials(data: Data) -> str:
    """Return the table of speed ratios between variants, by the number of trials and kind of space."""
    rows, checkpoints = [], (64, 128, 256)
    for what, one, other in BY_TRIALS:
        for space in _SPACES:
            runs = data.get(f"tables/{space}", ())
            effects = [effect(log_ratios(runs, other, one, cost_at(f"gap_at_{n}"))) for n in checkpoints]
            if all(each is not None and each.low is not None for each in effects):
                cells = (f"{each.value:.2f} ({each.low:.2f}-{each.high:.2f})" for each in effects if each)
                rows.append((what, space, *cells))
    lead = (
        "Speed of the best config relative to the other search's. Above 1, the first search is better. Geometric means"
        " with Student's 95 % intervals over layers, uncorrected. A search that has ended counts with its last config."
    )
    head = ("compared", "spaces", *(f"{n} trials" for n in checkpoints))
    return _section("By the number of trials", lead, head, rows)


def _batches(data: Data) -> str:
    """Return the table of the batches of adaptive sampling."""
    rows = []
    for variant in SAMPLED:
        for space in _SPACES:
            runs = [row for row in data.get(f"tables/{space}", ()) if row["variant"] == variant]
            sizes = [size for row in runs for size in whole_batches(row)]
            if sizes:
                kinds = ([n < 8 for n in sizes], [n == 8 for n in sizes], [n == 16 for n in sizes])
                shares = (f"{np.mean(each):.0%}" for each in kinds)
                rows.append((variant, space, f"{np.mean(sizes):.1f}", *shares))
    lead = (
        "Adaptive sampling decides how many configs are measured. As in its authors' code, it clusters two knobs, and"
        " few distinct values give few clusters. In the published form, it clusters all knobs."
    )
    head = ("tuner", "spaces", "mean batch", "below 8", "8", "16")
    return _section("Batches of adaptive sampling", lead, head, rows)


def _evaluators(data: Data) -> str:
    """Return the table of evaluators on recorded run times, over all spaces of others."""
    lines, rows = data.get("recorded", ()), []
    for evaluator in dict.fromkeys(row["evaluator"] for row in lines):
        results = [row for row in lines if row["evaluator"] == evaluator]
        column = {name: np.array([float(row[name]) for row in results]) for name in list(results[0])[3:]}
        within = (f"{column[f'within_{n}%'].mean():.0%} ({column[f'within_{n}%'].min():.0%})" for n in (1, 2, 5))
        saved = f"{column['saved_s'].sum() / column['timed_s'].sum():.0%}"
        slower = f"{100 * column['slower'].mean():.1f} % ({100 * column['slower'].max():.1f} %)"
        rows.append((evaluator, f"{column['runs'].mean():.1f}", saved, *within, slower))
    lead = (
        f"Each config of {len({row['space'] for row in lines})} spaces on GPUs has 32 recorded run times. The first one"
        " is not timed, as on hardware, and an evaluator sees the others one by one. Means over spaces, and the worst"
        " space in parentheses: the share of configs whose latency is within 1, 2 or 5 % of the mean of all 31 runs,"
        " and how much slower the config is that the evaluator ranks first. AdaTune's bound is a coefficient of"
        " variation below 0.1, which the minimum of three runs meets nearly always."
    )
    head = ("evaluator", "timed runs", "seconds saved", *(f"within {n} %" for n in (1, 2, 5)), "chosen config slower")
    return _section("Evaluators on recorded run times", lead, head, rows)


def _versus_anole(data: Data, n_trials: int) -> str:
    """Return the table of other tuners' costs relative to `anole` after some trials, in each kind of space."""
    found, cells = _effects(data, f"gap_at_{n_trials}"), dict[tuple[str, str], str]()
    corrected = [holm([p(each) for each in found.values()]) for p in (Effect.p_differs, lambda each: each.p_apart)]
    for (at, each), p, p_apart in zip(found.items(), *corrected, strict=True):
        apart = ("behind" if each.value > 1 else "ahead") if p < ALPHA else ""
        verdict = "equivalent" if p_apart < ALPHA else apart
        interval = "" if each.low is None else f" ({each.low:.2f}-{each.high:.2f})"
        cells[at] = f"{each.value:.2f}{interval} {verdict}".strip()
    lead = (
        f"Cost of each tuner's best config of {n_trials} trials, relative to `anole` without a warm start. Above 1, the"
        " tuner is worse. Geometric means with Student's 95 % intervals over layers on which no setting was chosen, for"
        " tuners with runs in at least two kinds of spaces. Verdicts are corrected for all"
        f" {len(found)} comparisons, including controls that are not listed; no verdict means undecided. Up to 64"
        " trials, tuners with batches of 64 only sample at random."
        if n_trials <= 64
        else f"The same after {n_trials} trials; verdicts are corrected for all {len(found)} comparisons."
    )
    variants = sorted({variant for variant, _ in cells} - set(_CONTROLS))
    spaces = [space for space in _SPACES if any(space == own for _, own in cells)]
    rows = [(variant, *(cells.get((variant, space), "") for space in spaces)) for variant in variants]
    return _section(f"Compared with `anole` after {n_trials} trials", lead, ("tuner", *spaces), rows)


def _effects(data: Data, gap: str) -> dict[tuple[str, str], Effect]:
    """Return the effects on a gap in held-out layers, by variant and kind of space, for variants in several kinds."""
    found: dict[tuple[str, str], Effect] = {}
    for space in _SPACES:
        runs = held_out(data.get(f"tables/{space}", ()))
        for variant in dict.fromkeys(row["variant"] for row in runs if row["variant"] != _OURS):
            mean = effect(log_ratios(runs, variant, _OURS, cost_at(gap)))
            if mean is not None and (mean.low is not None or mean.is_equal):
                found[variant, space] = mean
    n_spaces = Counter(variant for variant, _ in found)
    return {at: each for at, each in found.items() if n_spaces[at[0]] > 1}


def _latency(row: Row) -> tuple[str, str]:
    return (f"{float(row['latency_ms']):.2f}", f"{float(row['ratio']):.2f}") if row else ("", "")


def _tables(data: Data, space: str, title: str) -> str:
    """Return the table of costs relative to the optimum, on the layers and seeds that all variants have."""
    rows, n_runs = [], 0
    for variant, runs in _common(data.get(f"tables/{space}", ())).items():
        n_runs = len(runs)
        trials = f"{np.mean([int(row['trials']) for row in runs]):.0f}"
        gaps = [_interval(runs, cost_at(at)) for at in ("gap_at_256", "gap_at_end")]
        reached = [float(row["trials_to_1%"] or "inf") for row in runs]
        near = (f"{np.isfinite(reached).mean():.0%}", _median(reached, "{:.0f}"))
        last = gaps[-1]
        gaps[-1] = "" if gaps[-1] == gaps[-2] else gaps[-1]
        rows.append((last, variant, trials, *gaps, *near))
    head = ("tuner", "trials", "at 256", "at the end", "within 1 %", "trials to 1 %")
    lead = (
        f"Cost of the best config over the optimum's in {n_runs} runs; lower is better. Geometric means with 95 %"
        f" intervals over layers, capped at 100; an empty cell at the end equals the cell at 256. Trials to 1 %"
        " are medians, empty if half of the runs never come within 1 %."
        if space == next(iter(_SPACES))
        else f"The columns are the same; {n_runs} runs."
    )
    return _section(title, lead, head, [row[1:] for row in sorted(rows)])


def _prices(data: Data) -> str:
    """Return the table of the seconds to within 1 % for prices of a trial, relative to the baseline."""
    found, runs = [], data.get("tables/constrained", ())
    for variant in PRICED:
        effects = [effect(log_ratios(runs, variant, _BASELINE, partial(_cost_s, price_s=price))) for price in PRICES_S]
        if all(each is not None and each.low is not None for each in effects):
            cells = (f"{each.value:.2f} ({each.low:.2f}-{each.high:.2f})" for each in effects if each)
            found.append((effects[-1].value, (variant, *cells)))
    head = ("tuner", *(f"{price:g} s" for price in PRICES_S))
    lead = (
        f"Seconds of search and trials to within 1 % of the optimum, relative to {_BASELINE}; lower is better."
        " Geometric means with Student's 95 % intervals over layers. A run that never comes within 1 % counts with all"
        " its seconds, so tuners that often miss look too good."
    )
    return _section("What a trial may cost", lead, head, [row for _, row in sorted(found)])


def _cost_s(row: Row, price_s: float) -> float:
    """Return the seconds until a run is within 1 % of the optimum, or all its seconds if it never is."""
    trials, search_s = row["trials_to_1%"] or row["trials"], row["search_s_to_1%"] or row["search_s"]
    return float(search_s or "nan") + price_s * float(trials or "nan")


def _vta_networks(data: Data) -> str:
    """Return the table of entire networks on the accelerator: the optimum, and how much slower each variant is."""
    lines = data.get("accelerator", ())
    variants = list(dict.fromkeys(row["variant"] for row in lines))
    n_seeds = len({row["seed"] for row in lines})
    rows = []
    for network in dict.fromkeys(row["network"] for row in lines):
        results = [row for row in lines if row["network"] == network]
        cells = [_extra([row for row in results if row["variant"] == variant]) for variant in variants]
        rows.append((network, f"{float(results[0]['optimum_s']):.4f}", *cells))
    lead = (
        "Seconds of the optimum at 100 MHz, and by how many percent the designs of each tuner are slower (mean over"
        f" {n_seeds} seeds). All layers share one block of the matrix unit, with VTA's own buffers and 128 trials a"
        " layer."
    )
    return _section("Whole networks on the accelerator", lead, ("network", "optimum (s)", *variants), rows)


def _extra(rows: Rows) -> str:
    """Return the mean slowdown of networks relative to the optimum in percent; empty without rows."""
    ratios = [float(row["latency_s"]) / float(row["optimum_s"]) for row in rows]
    return f"{100 * (statistics.fmean(ratios) - 1):.1f}" if ratios else ""


def _layers(data: Data) -> str:
    """Return the table of live searches, with latencies relative to the default config of the constrained space."""
    rows, lines = [], data.get("layers", ())
    for space, variant in dict.fromkeys((row["space"], row["variant"]) for row in lines):
        runs = [row for row in lines if (row["space"], row["variant"]) == (space, variant)]
        finished = [row for row in runs if row["ratio_at_end"]]
        ratio = _interval(finished, lambda row: float(row["ratio_at_end"])) if finished else ""
        n_trials = sum(int(row["trials"]) for row in runs)
        failed = sum(int(row["failed"]) for row in runs) / n_trials
        seconds = _median([float(row["seconds"]) for row in runs], "{:.0f}")
        layers = " ".join(sorted({row["layer"] for row in runs}))
        counts = (layers, str(len(runs)), f"{n_trials / len(runs):.0f}")
        rows.append((space, variant, *counts, ratio, seconds, f"{failed:.0%}"))
    head = ("space", "tuner", "layers", "runs", "trials", "latency", "seconds", "failed")
    lead = (
        "Live searches on this processor. The latency is relative to the untuned default config; lower is better."
        " AutoTVM's spaces are as small as its own template's."
    )
    return _section("Layers on the processor", lead, head, sorted(rows, key=lambda row: (row[0], row[5])))


def _common(rows: Rows) -> dict[str, list[Row]]:
    """Return the rows of each listed variant on the layers and seeds that all have, without variants with few runs."""
    found: dict[str, dict[tuple[str, str], Row]] = {}
    for row in rows:
        if row["variant"] in (*PRICED, *SAMPLED):
            found.setdefault(row["variant"], {})[row["layer"], row["seed"]] = row
    most = max(map(len, found.values()), default=0)
    found = {variant: own for variant, own in found.items() if len(own) > _MIN_SHARE * most}
    common = sorted(set.intersection(*map(set, found.values()))) if found else []
    return {variant: [own[place] for place in common] for variant, own in found.items()} if common else {}


def _interval(runs: Sequence[Row], figure: Callable[[Row], float]) -> str:
    """Return the geometric mean of a figure with its interval, if it has enough layers and varies."""
    mean = effect({(row["layer"], row["seed"]): float(np.log(figure(row))) for row in runs})
    if mean is None or mean.low is None:
        return "" if mean is None else f"{mean.value:.3f}"
    return f"{mean.value:.3f} ({mean.low:.3f}-{mean.high:.3f})"


def _median(values: Sequence[float], shown: str) -> str:
    """Return the formatted upper median; empty if it is infinite."""
    middle = statistics.median_high(values)
    return shown.format(middle) if np.isfinite(middle) else ""


def _section(title: str, lead: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a section with a table; empty without rows."""
    table = [line(*cells) for cells in (head, ["---"] * len(head), *rows)]
    wrapped = textwrap.wrap(lead, 120, break_on_hyphens=False)
    return "\n".join(["", f"## {title}", "", *wrapped, "", *table]) if rows else ""
