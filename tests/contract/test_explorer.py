from __future__ import annotations

import pytest

from anole.search.explore import EXPLORERS
from anole.testing.explorer_contract import ExplorerContract

BRIEF = {
    "annealing": {"n_chains": 64, "n_steps": 60},
    "contextual": {"n_chains": 64, "n_steps": 60},
    "guided_annealing": {"n_chains": 64, "n_steps": 60},
    "ppo": {"n_episodes": 64, "n_steps": 40, "horizon": 20},
    "mappo": {"n_episodes": 64, "n_steps": 40, "horizon": 20},
    "random": {},
}
"""Settings by which a search is short: the promises do not depend on its length."""


@pytest.mark.examples(10)  # each explorer, and each surrogate
class TestExplorers(ExplorerContract):
    @pytest.fixture(params=EXPLORERS)
    def explorer(self, request):
        return EXPLORERS[request.param](**BRIEF[request.param])


@pytest.mark.slow
class TestExplorersByDefault(ExplorerContract):
    @pytest.fixture(params=EXPLORERS)
    def explorer(self, request):
        return EXPLORERS[request.param]()
