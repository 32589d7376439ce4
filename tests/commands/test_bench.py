"""anole bench: a list, a run with a leaderboard, its picture, and files for other tools."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from anole.__main__ import main
from anole.bench import load, names


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", *arguments], catch_exceptions=False)


def test_the_problems_of_a_split_are_listed() -> None:
    assert bench("list", "--split", "dev").output.splitlines() == names("dev")
    assert bench("list", "--split", "test").output.splitlines() == names("test")


def test_runs_are_ranked_and_plotted(tmp_path: Path) -> None:
    out, picture = tmp_path / "runs.csv", tmp_path / "runs.svg"
    options = ["--optimizer", "random", "--optimizer", "autotvm", "--problem", "vta/25088*", "--trials", "8"]
    found = bench("run", *options, "--seeds", "2", "--out", str(out))
    assert found.exit_code == 0, found.output
    assert "4 of 4: autotvm on vta/25088-4096_k1x1_s1_1x1, seed 1: score " in found.stderr
    assert [line.split()[1] for line in found.stdout.splitlines() if line.startswith("│")] in (
        [["random", "autotvm"], ["autotvm", "random"]]
    )
    assert bench("plot", str(out), str(picture)).exit_code == 0 and picture.read_text().startswith("<svg")


def test_an_unknown_problem_or_optimizer_is_one_line(tmp_path: Path) -> None:
    out = str(tmp_path / "runs.csv")
    unknown = bench("run", "--optimizer", "anoel", "--problem", "vta/25088*", "--out", out)
    assert (unknown.exit_code, unknown.stderr.count("\n")) == (2, 1) and "did you mean 'anole'" in unknown.stderr
    run = ("run", "--optimizer", "random", "--problem", "vta/none", "--out", out)
    for missing in (bench(*run), bench("export", "vta/none", "--folder", str(tmp_path))):
        assert missing.exit_code == 2 and missing.stderr.startswith("anole: vta/none: there is no such problem or file")
    assert not list(tmp_path.iterdir()), "nothing was started"


def test_an_exported_problem_is_read_back(tmp_path: Path) -> None:
    name = "vta/25088-4096_k1x1_s1_1x1"
    *_, path = bench("export", name, "--folder", str(tmp_path)).output.split()
    assert abs(load(path).optimum / load(name).optimum - 1) < 1e-9
    assert len(load(path).latencies_s) == len(load(name).latencies_s)
