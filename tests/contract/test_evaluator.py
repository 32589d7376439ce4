from __future__ import annotations

import pytest

from anole.search.evaluators import EVALUATORS
from anole.testing.evaluator_contract import EvaluatorContract


class TestEvaluators(EvaluatorContract):
    @pytest.fixture(params=EVALUATORS)
    def evaluator(self, request):
        return EVALUATORS[request.param]()
