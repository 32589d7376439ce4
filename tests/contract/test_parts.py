"""The built-in parts of tuners satisfy their contracts."""

import pytest

from anole.search.evaluators import EVALUATORS
from anole.search.explore import EXPLORERS
from anole.search.sample import SAMPLERS
from anole.search.surrogate import SURROGATES
from anole.testing.evaluator_contract import EvaluatorContract
from anole.testing.explorer_contract import ExplorerContract
from anole.testing.sampler_contract import SamplerContract
from anole.testing.surrogate_contract import SurrogateContract

CHAINS, EPISODES = {"n_chains": 64, "n_steps": 60}, {"n_episodes": 64, "n_steps": 40, "horizon": 20}
SHORT_SEARCHES = {
    **{"annealing": CHAINS, "contextual": CHAINS, "guided_annealing": CHAINS},
    **{"ppo": EPISODES, "mappo": EPISODES, "random": {}, "by_merit": {}, "descent": {}, "exhaustive": {}},
}
"""Settings for short searches: the contracts do not depend on their length."""


class TestEvaluators(EvaluatorContract):
    @pytest.fixture(params=EVALUATORS)
    def evaluator(self, request):
        return EVALUATORS[request.param]()


@pytest.mark.examples(10)  # each explorer, and each surrogate
class TestExplorers(ExplorerContract):
    @pytest.fixture(params=EXPLORERS)
    def explorer(self, request):
        return EXPLORERS[request.param](**SHORT_SEARCHES[request.param])


@pytest.mark.slow
class TestExplorersByDefault(ExplorerContract):
    @pytest.fixture(params=EXPLORERS)
    def explorer(self, request):
        return EXPLORERS[request.param]()


class TestSamplers(SamplerContract):
    @pytest.fixture(params=SAMPLERS)
    def sampler(self, request):
        return SAMPLERS[request.param]()


class TestSurrogates(SurrogateContract):
    @pytest.fixture(params=SURROGATES)
    def surrogate(self, request):
        return SURROGATES[request.param]()
