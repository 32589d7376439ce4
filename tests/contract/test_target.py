import pytest

from anole.errors import TargetError
from anole.targets import get_profilable, get_target
from anole.targets.cpu.settings import describe_cpu
from anole.testing.target_contract import TargetContract
from anole_cuda.settings import describe_cuda
from anole_vta.settings import describe_vta

DESCRIPTIONS = {"cpu": describe_cpu(threads=1), "cuda": describe_cuda("sm_90"), "vta": describe_vta()}
OPEN = {"cpu": describe_cpu(threads=1, space="open"), "cuda": describe_cuda("sm_90", space="open")}


class TestTargets(TargetContract):
    @pytest.fixture(params=list(DESCRIPTIONS))
    def description(self, request):
        return DESCRIPTIONS[request.param]


@pytest.mark.guard
class TestOpenTargets(TargetContract):
    @pytest.fixture(params=list(OPEN))
    def description(self, request):
        return OPEN[request.param]


def test_only_the_cpu_is_profilable():
    assert [kind for kind in DESCRIPTIONS if get_profilable(DESCRIPTIONS[kind])] == ["cpu"]


def test_an_unknown_kind_is_rejected():
    with pytest.raises(TargetError, match="unknown target kind 'abacus'; use one of cpu"):
        get_target({"kind": "abacus"})
