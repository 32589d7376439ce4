"""Comparing two builds: which one is slower, by how much, and whether their outputs agree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from anole.documents.build import read_build, write_build
from anole.errors import BuildError
from anole.evaluate.timing.sequential import Ratio
from anole.report.compare import Rules, compare_builds, describe_ratio, pair_builds

from ..terminal import anole
from ..tiny_builds import HOME

RULES = Rules(threshold=0.2, tolerance=3e-4, seconds=60, rounds=10)


def alter(build: Path, folder: Path, line: str) -> Path:
    """Copy a build, adding a line of Python before its network returns."""
    shutil.copytree(build, folder)
    before = (folder / "load.py").read_text()
    after = before.replace("        return [outputs", f"        {line}\n        return [outputs")
    assert after != before
    (folder / "load.py").write_text(after)
    return folder


@pytest.mark.guard
def test_a_build_equals_its_copy_and_beats_a_slowed_copy(tiny_project: Path, tmp_path: Path) -> None:
    net = tiny_project / "net"
    before, after = tmp_path / "before", tmp_path / "after"
    alter(net, before / "same", "pass")
    alter(net, before / "more", "pass")
    shutil.copytree(net, after / "same")
    # Several times the latency of the network.
    alter(net, after / "more", "import time; time.sleep(1e-3)")
    shutil.copytree(net, after / "new")
    command = [sys.executable, "-m", "anole", "compare", before, after, "--json", "--rounds", "40", "--threshold", "25"]
    environment = {**os.environ, "PYTHONPATH": str(HOME / "lib")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    more, same = json.loads(done.stdout)
    assert (more["name"], more["verdict"], same["name"], same["verdict"]) == ("more", "slower", "same", "equal")
    assert 1.25 < more["ratio"]["low"] <= more["ratio"]["value"] <= more["ratio"]["high"]
    assert 0.8 < same["ratio"]["low"] <= same["ratio"]["high"] < 1.25
    assert same["precisions"] == ["float32", "float32"]
    assert same["error"] == more["error"] == 0 and same["alpha"] == 0.005
    assert 10 <= same["ratio"]["rounds"] <= 40 and 0 < same["undisturbed"] <= 1
    assert all(0 < latency_s < 1 for latency_s in same["latencies_s"])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "return [1.001 * outputs.numpy()]",
            r"their outputs \(float32 and float32\) differ by 0.001, relative to their norm; at most 0.0003 is allowed "
            r"\(--tolerance\)",
        ),
        ("raise ValueError('broken')", "cannot be compared: .*broken"),
    ],
)
def test_builds_with_different_outputs_or_errors_are_rejected(
    tiny_project: Path, tmp_path: Path, line: str, problem: str
) -> None:
    net, other = tiny_project / "net", alter(tiny_project / "net", tmp_path / "other", line)
    with pytest.raises(BuildError, match=f"^{re.escape(f'{net} and {other}')}: {problem}"):
        compare_builds("net", net, other, RULES)


def test_simulated_builds_are_compared_exactly(accelerated: Path, tmp_path: Path) -> None:
    net, slower = accelerated / "net", tmp_path / "slower"
    outcome = anole("compare", net, net)
    assert outcome.exit_code == 0, outcome.output
    verdict, *sides, evidence = outcome.output.splitlines()
    assert verdict == "no difference larger than 1 %" and evidence == "  computed; outputs differ by 0"
    assert [re.sub(r"[\d.]+ [mµ]s", "LATENCY", side) for side in sides] == [
        f"  {letter}  LATENCY  int8  {net}" for letter in "AB"
    ]
    shutil.copytree(net, slower)
    build = read_build(net)
    assert build.accelerator is not None
    accelerator = {**build.accelerator, "latency_s": build.accelerator["latency_s"] * 1.1}
    write_build(slower, replace(build, accelerator=accelerator))
    outcome = anole("compare", net, slower)
    assert outcome.exit_code == 1 and outcome.output.startswith("B is 10.0 % slower\n")


def test_builds_with_different_kinds_or_inputs_are_rejected(
    tiny_project: Path, accelerated: Path, tmp_path: Path
) -> None:
    net, simulated = tiny_project / "net", accelerated / "net"
    with pytest.raises(
        BuildError, match=r"have different inputs: float32 \[2, 3, 32, 32\] and float32 \[1, 3, 16, 16\]"
    ):
        compare_builds("net", net, simulated, RULES)
    build = read_build(simulated)
    shutil.copytree(simulated, tmp_path / "net")
    write_build(tmp_path / "net", replace(build, inputs=read_build(net).inputs, outputs=read_build(net).outputs))
    with pytest.raises(BuildError, match="one is for cpu, the other for vta"):
        compare_builds("net", net, tmp_path / "net", RULES)


@pytest.mark.parametrize(
    ("builds", "problem"),
    [
        ((), "a: found neither a build nor folders of builds"),
        (("a/x", "b/y"), "a and .*b have no builds with the same name"),
        (("a", "b/y"), "a and .*b have no builds with the same name"),
    ],
)
def test_folders_without_a_pair_are_rejected(tmp_path: Path, builds: Sequence[str], problem: str) -> None:
    touch(tmp_path, *builds)
    with pytest.raises(BuildError, match=problem):
        pair_builds(tmp_path / "a", tmp_path / "b")


def touch(folder: Path, *builds: str) -> None:
    for name in builds:
        (folder / name).mkdir(parents=True)
        (folder / name / "build.json").touch()


def test_pairs_have_the_same_names(tmp_path: Path) -> None:
    touch(tmp_path, "a/x", "a/y", "a/z", "b/y", "b/x", "b/w")
    a, b = tmp_path / "a", tmp_path / "b"
    assert pair_builds(a, b) == {"x": (a / "x", b / "x"), "y": (a / "y", b / "y")}
    assert list(pair_builds(a / "x", b / "w").values()) == [(a / "x", b / "w")]


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (Ratio(1.031, 1.024, 1.039, 15, 0.01), "B is 3.1 % slower [+2.4 %, +3.9 %]"),
        (Ratio(0.969, 0.961, 0.976, 15, 0.01), "B is 3.1 % faster [-3.9 %, -2.4 %]"),
        (Ratio(1.001, 0.996, 1.007, 15, 0.01), "no difference larger than 1 % [-0.4 %, +0.7 %]"),
        (
            Ratio(1.01, 0.996, 1.02, 15, 0.01),
            "open: B differs by [-0.4 %, +2.0 %], maybe more or less than 1 %; increase --seconds or --rounds",
        ),
        (Ratio(1.01, 0.0, float("inf"), 2, 0.01), "open: 2 rounds are too few; increase --seconds or --rounds"),
        (Ratio(1.5, 1.5, 1.5, 0, 0.01), "B is 50.0 % slower"),
    ],
)
def test_a_verdict_is_described_in_words(ratio: Ratio, words: str) -> None:
    assert describe_ratio(ratio) == words


def test_several_pairs_are_named_and_counted(accelerated: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(accelerated / "net", tmp_path / "before" / name)
    outcome = anole("compare", tmp_path / "before", tmp_path / "before")
    lines = outcome.output.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "a: no difference larger than 1 %",
        "b: no difference larger than 1 %",
        "2 pairs: 2 equal",
    ]


def test_contradictory_options_are_rejected() -> None:
    outcome = anole("compare", "a", "b", "--seconds", "3", "--rounds", "4")
    assert outcome.exit_code == 2 and "give --seconds or --rounds, not both" in outcome.output
