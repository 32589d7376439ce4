"""The presets: the explorer, sampler, surrogate and evaluator of each named tuner, and overrides in models.yaml.

A package adds its own parts through entry points in the groups ``anole.explorers``, ``anole.samplers``,
``anole.surrogates`` and ``anole.evaluators``, each under the part's name. They are looked up only for names that are
not built in, so an installed package cannot change the meaning of a built-in name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from anole.errors import SpecError, cause
from anole.search import DEFAULT_PRESET
from anole.search.evaluators import EVALUATORS
from anole.search.evaluators.adaptive_evaluator import AdaptiveEvaluator
from anole.search.evaluators.fixed import Fixed
from anole.search.explore import EXPLORERS
from anole.search.explore.annealing import Annealing
from anole.search.explore.contextual_annealing import ContextualAnnealing
from anole.search.explore.guided_annealing import GuidedAnnealing
from anole.search.explore.ppo import MAPPO, PPO
from anole.search.explore.unguided import Exhaustive, Random
from anole.search.sample import SAMPLERS
from anole.search.sample.adaptive_sampler import AdaptiveSampler
from anole.search.sample.confidence import Confidence
from anole.search.sample.epsilon_greedy import ContextualGreedy, EpsilonGreedy
from anole.search.sample.first import First
from anole.search.settings import TunerSettings, describe_unknown, read_fields
from anole.search.surrogate import SURROGATES
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.search.surrogate.forest import Forest
from anole.search.surrogate.merit_trees import MeritTrees
from anole.search.surrogate.none import NoSurrogate

_N_PLANNED = 64
"""Number of candidates from which RELEASE and Chameleon sample: their b_GBT, as in the authors' code."""

_AS_PUBLISHED = AdaptiveSampler(clustered="widest", n_random=3)
"""Adaptive sampling as in the authors' code, which clusters the two knobs with the most values."""

PRESETS = {
    settings.preset: settings
    for settings in (
        TunerSettings("random", Random(), First(), NoSurrogate(), Fixed()),
        TunerSettings("exhaustive", Exhaustive(), First(), NoSurrogate(), Fixed(), batch=256),
        TunerSettings("autotvm", Annealing(), EpsilonGreedy(least_random=1), BoostedTrees(), Fixed()),
        TunerSettings("release", PPO(n_candidates=_N_PLANNED, min_steps=129), _AS_PUBLISHED, BoostedTrees(), Fixed()),
        TunerSettings("chameleon", PPO(n_candidates=_N_PLANNED), _AS_PUBLISHED, BoostedTrees(), Fixed()),
        TunerSettings(
            "adatune",
            ContextualAnnealing(n_candidates=64, patience_over=32),
            ContextualGreedy(),
            Forest(),
            AdaptiveEvaluator(),
            batch=32,
        ),
        TunerSettings("dcoc", MAPPO(), Confidence(), BoostedTrees(), Fixed()),
        TunerSettings(
            "anole",
            GuidedAnnealing(n_steps=150, patience=25, patience_over=None),
            EpsilonGreedy(),
            MeritTrees(max_depth=6, learning_rate=0.1),
            AdaptiveEvaluator(micro_batch_s=0.002, max_s=0.1, slow_factor=3.0),
            batch=16,
            batch_without_merit=8,
            n_confirm=8,
            min_gain=0.01,
            warm_start=True,
        ),
    )
}
"""Every preset by its name."""

BUILT_IN: dict[str, Mapping[str, type[Any]]] = {
    "explorer": EXPLORERS,
    "sampler": SAMPLERS,
    "surrogate": SURROGATES,
    "evaluator": EVALUATORS,
}
"""For every role, the settings classes of its built-in parts by name."""

_TUNER_FIELDS = ("batch", "batch_without_merit", "n_confirm", "min_gain", "warm_start", "max_iterations")


def read_tuner(plain: Mapping[str, Any], path: str = "tuning") -> TunerSettings:
    """Return the settings of a tuner from plain values.

    Args:
        plain: ``preset`` and its overrides: a part as its name (``explorer: random``) or as a mapping of
            its settings (``explorer: {name: annealing, n_steps: 200}``), and ``batch``, which alone applies in all
            spaces, ``batch_without_merit``, ``n_confirm``, ``min_gain``, ``warm_start`` and ``max_iterations``. Other
            settings keep the preset's value; in a part that is not the preset's, they have their defaults.
        path: the YAML path of `plain` in models.yaml.

    Raises:
        SpecError: a name is unknown or a value is not allowed.
    """
    allowed = ["preset", *BUILT_IN, *_TUNER_FIELDS]
    for name in plain:
        if name not in allowed:
            raise SpecError(f"{path}.{name}", describe_unknown("setting", name, allowed))
    preset = plain.get("preset", DEFAULT_PRESET)
    if not isinstance(preset, str) or preset not in PRESETS:
        raise SpecError(f"{path}.preset", describe_unknown("preset", preset, PRESETS))
    settings = PRESETS[preset] if "batch" not in plain else replace(PRESETS[preset], batch_without_merit=None)
    overrides = read_fields(TunerSettings, {name: plain[name] for name in _TUNER_FIELDS if name in plain}, path)
    for role in BUILT_IN:
        if role in plain:
            overrides[role] = _read_part(role, plain[role], getattr(settings, role), f"{path}.{role}")
    return replace(settings, **overrides)


def _read_part(role: str, plain: Any, preset: Any, path: str) -> Any:
    """Return the settings of one part, starting from the preset's settings."""
    overrides, name_path = (dict(plain), f"{path}.name") if isinstance(plain, Mapping) else ({"name": plain}, path)
    part = _find_part(role, overrides.pop("name", preset.name), name_path)
    start = preset if part.name == preset.name else part()
    return replace(start, **read_fields(part, overrides, path))


def _find_part(role: str, name: object, path: str) -> type[Any]:
    """Return the settings class of a part; `path` is the YAML path of its name in models.yaml."""
    if isinstance(name, str) and name in BUILT_IN[role]:
        return BUILT_IN[role][name]
    external = entry_points(group=f"anole.{role}s")
    if not isinstance(name, str) or name not in external.names:
        raise SpecError(path, describe_unknown(role, name, [*BUILT_IN[role], *sorted(external.names)]))
    return _load(role, external[name], path)


def _load(role: str, entry_point: EntryPoint, path: str) -> type[Any]:
    """Load the settings class of an entry point and check that it is a part with the entry point's name."""
    where = f"{role} {entry_point.name!r}, which is {entry_point.value}"
    try:
        part = entry_point.load()
    except Exception as error:
        raise SpecError(path, f"{where}, cannot be imported: {cause(error)}") from error
    if not isinstance(part, type) or not is_dataclass(part):
        raise SpecError(path, f"{where}, is not a dataclass of settings")
    if (name := getattr(part, "name", None)) != entry_point.name:
        raise SpecError(path, f"{where}, has the `name` {name!r}; it must equal the entry point's name")
    return part
