"""Kinds of targets: Anole's, and kinds that packages add by entry points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anole.config.reading import parse_spec
from anole.errors import SpecError, TargetError
from anole.targets import all_kinds, get_kind, get_target, usable_kinds
from anole.task import Conv2d

ANOTHER_KIND = Path(__file__).parents[1] / "workflow/another_kind"


def spec_of(**target: Any) -> dict[str, Any]:
    return {
        "models": {"net": {"source": "torchvision:alexnet", "inputs": {"x": [1, 3, 64, 64]}}},
        "targets": {"mine": target},
        "builds": [{"model": "net", "target": "mine"}],
    }


@pytest.fixture
def abacus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ANOTHER_KIND)


def test_a_package_adds_a_kind(abacus: None) -> None:
    assert all_kinds() == ["abacus", "cpu", "cuda", "vta"]
    description = get_kind("abacus").describe(rods=1)
    target = get_target(description)
    assert target.description == description
    workload = Conv2d(1, 8, 8, 8, 16, (3, 3), padding=(1, 1, 1, 1))
    assert target.space(workload).rejection(target.default_config(workload)) is None


def test_its_settings_are_checked_like_anoles_own(abacus: None) -> None:
    assert parse_spec(spec_of(kind="abacus", rods=2)).targets["mine"].settings == {"rods": 2}
    with pytest.raises(SpecError, match=r"targets.mine.rods: found 0; an integer of at least 1 is expected"):
        parse_spec(spec_of(kind="abacus", rods=0))
    with pytest.raises(SpecError, match=r"targets.mine.rod: is unknown; did you mean 'rods'"):
        parse_spec(spec_of(kind="abacus", rod=1))
    with pytest.raises(SpecError, match=r"targets.mine.measure: is unknown"):
        parse_spec(spec_of(kind="abacus", rods=1, measure={"rpc": "tracker:9190"}))


def test_without_the_package_the_kind_is_unknown() -> None:
    with pytest.raises(SpecError, match=r"mine.kind: found 'abacus', which is not a kind .* allowed: cpu, cuda, vta$"):
        parse_spec(spec_of(kind="abacus", rods=2))
    with pytest.raises(TargetError, match=r"unknown target kind 'abacus'; use one of cpu, cuda, vta$"):
        get_kind("abacus")


def test_a_package_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken-1.0.dist-info").mkdir()
    (tmp_path / "broken-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (tmp_path / "broken-1.0.dist-info/entry_points.txt").write_text("[anole.targets]\nsundial = sundial:KIND\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SpecError) as caught:
        parse_spec(spec_of(kind="sundial"))
    assert str(caught.value) == (
        "models.yaml: targets.mine.kind: target kind 'sundial' (sundial:KIND) cannot be imported: "
        "ModuleNotFoundError: No module named 'sundial'"
    )
    assert "sundial" in all_kinds() and len(list(usable_kinds())) == 3
