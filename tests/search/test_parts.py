"""Parts that an installed package brings."""

from __future__ import annotations

from pathlib import Path

import pytest

from anole.errors import SpecError
from anole.search.explore.annealing import Annealing
from anole.search.presets import read_tuner

MODULE = """
from dataclasses import dataclass
from typing import Annotated, ClassVar

from anole.search.settings import Range


@dataclass(frozen=True)
class Part:
    name: ClassVar[str] = "mine"
    steps: Annotated[int, Range(1, 9)] = 3

    def start(self, space):
        return self


@dataclass(frozen=True)
class Shadow(Part):
    name: ClassVar[str] = "annealing"


def function():
    pass
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a package whose entry points are given as lines of each group."""

    def install(**groups: str) -> None:
        (tmp_path / "a_part_from_outside.py").write_text(MODULE)
        info = tmp_path / "outside-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
        sections = (f"[anole.{role}s]\n{line}\n" for role, line in groups.items())
        (info / "entry_points.txt").write_text("\n".join(sections))
        monkeypatch.syspath_prepend(tmp_path)

    return install


ROLES = ("explorer", "sampler", "surrogate", "evaluator")


@pytest.mark.parametrize("role", ROLES)
def test_a_part_from_outside_is_named_set_and_stored_like_one_from_inside(install, role):
    install(**{role: "mine = a_part_from_outside:Part"})
    settings = read_tuner({"preset": "random", role: {"name": "mine", "steps": 5}})
    part = getattr(settings, role)
    assert (type(part).__name__, part.steps) == ("Part", 5)
    assert settings.to_json()[role] == {"name": "mine", "steps": 5}
    assert read_tuner(settings.to_json()) == settings
    with pytest.raises(SpecError, match=rf"tuning.{role}.steps: is 10, not a whole number from 1 to 9"):
        read_tuner({role: {"name": "mine", "steps": 10}})


def test_parts_from_outside_are_listed_where_a_name_is_unknown(install):
    install(explorer="mine = a_part_from_outside:Part")
    with pytest.raises(SpecError, match=r"tuning.explorer: unknown explorer 'yours'.*random, mine"):
        read_tuner({"explorer": "yours"})
    with pytest.raises(SpecError, match="unknown sampler 'mine'"):
        read_tuner({"sampler": "mine"})


def test_a_built_in_name_means_what_is_built_in(install):
    install(explorer="annealing = a_part_from_outside:Shadow")
    assert type(read_tuner({"preset": "random", "explorer": "annealing"}).explorer) is Annealing


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere_at_all:Part", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("a_part_from_outside:Lost", "cannot be imported: AttributeError"),
        ("a_part_from_outside:function", "is not a dataclass of settings"),
        ("a_part_from_outside:Shadow", "calls itself 'annealing'; its `name` must be that of the entry point"),
    ],
)
def test_what_a_package_does_wrong_is_said(install, place, message):
    install(explorer=f"mine = {place}")
    with pytest.raises(SpecError) as caught:
        read_tuner({"explorer": {"name": "mine"}})
    assert str(caught.value).startswith(
        f"models.yaml: tuning.explorer.name: explorer 'mine', which is {place}, {message}"
    )
