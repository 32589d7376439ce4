from __future__ import annotations

from pathlib import Path

import pytest

from anole.project.needs import limits_of
from anole.project.pipeline import Pipeline

MODELS = """
models: {{net: {{source: "torchvision:alexnet", inputs: {{x: [1, 3, 64, 64]}}}}}}
targets: {{here: {target}}}
builds: [{{model: net, target: here, trials: 0}}]
"""


@pytest.mark.parametrize(
    ("target", "limits"),
    [
        ("{kind: cpu}", {"device": 1}),
        ("{kind: vta}", {}),
        ("{kind: cpu, mcpu: znver4, threads: 2, measure: {rpc: 'host:9190', key: zen}}", {}),
        ("{kind: cuda, arch: sm_90}", {"gpu": 1}),
    ],
)
def test_only_what_its_jobs_share_is_limited(tmp_path: Path, target: str, limits: dict[str, int]) -> None:
    (tmp_path / "models.yaml").write_text(MODELS.format(target=target))
    assert limits_of(Pipeline.load(tmp_path / "models.yaml")) == limits
