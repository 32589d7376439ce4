"""Shell completion of commands and the project's names: it is quick and prints no errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from anole.__main__ import main
from anole.search import PRESET_NAMES
from anole.search.presets import PRESETS

from ..tiny_builds import HOME

MODELS = """
models: {net: {source: "torchvision:alexnet", inputs: {x: [1, 3, 64, 64]}}, other: {source: "onnx:absent.onnx"}}
targets: {cpu: {kind: cpu}, board: {kind: cpu}}
tuning: {preset: random}
builds:
- {model: net, target: cpu}
- {model: net, target: cpu, preset: dcoc}
- {model: other, target: board, name: mine}
- 7
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with mistakes in models.yaml, and two compiled builds."""
    (tmp_path / "models.yaml").write_text(MODELS)
    for folder in ("builds/mine", "builds/net-cpu-random", "builds/unfinished", "old/mine"):
        (tmp_path / folder).mkdir(parents=True)
        if folder != "builds/unfinished":
            (tmp_path / folder / "build.json").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complete(line: str) -> list[str]:
    """Return the completions of the last word of a line, which is empty after a space."""
    *words, last = line.split(" ")
    return [item.value for item in ShellComplete(main, {}, "anole", "_ANOLE_COMPLETE").get_completions(words, last)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("comp", ["compile", "compare", "completion"]),
        ("compile ", ["net-cpu-random", "net-cpu-dcoc", "mine"]),
        ("refine m", ["mine"]),
        ("lock mine ", ["net-cpu-random", "net-cpu-dcoc"]),
        ("merge net-cpu-d", ["net-cpu-dcoc"]),
        ("extract ", ["net", "other"]),
        ("extract net --target ", ["cpu", "board"]),
        ("describe b", ["board"]),
        ("tune x.json --preset a", ["autotvm", "adatune", "anole"]),
        ("run ", ["builds/mine", "builds/net-cpu-random"]),
        ("profile bu", ["builds/mine", "builds/net-cpu-random"]),
        ("compare builds/mine old/", ["old/mine"]),
        ("compare builds/mine ./old/", ["./old/mine"]),
        ("export builds/n", ["builds/net-cpu-random"]),
        ("completion f", ["fish"]),
    ],
)
def test_an_argument_is_completed(line: str, expected: list[str]) -> None:
    assert sorted(complete(line)) == sorted(expected)


def test_spec_option_selects_the_project(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/models.yaml").write_text(MODELS.replace("mine", "theirs"))
    assert complete("compile --spec there/models.yaml t") == ["theirs"]


@pytest.mark.parametrize(
    "text", [None, "{", "7", "builds: 7", "builds: [{name: [1]}]", "models: [1]", "tuning: 3\nbuilds: [{}]"]
)
def test_a_broken_project_has_no_completions_and_no_errors(project: Path, text: str | None) -> None:
    (project / "models.yaml").unlink() if text is None else (project / "models.yaml").write_text(text)
    for line in ("compile n", "extract n", "extract x --target c", "lock n"):
        assert complete(line) == []


def test_preset_names_match_the_presets() -> None:
    assert set(PRESET_NAMES) == set(PRESETS)


def test_completion_imports_nothing_heavy_and_prints_no_errors() -> None:
    check = (
        "import atexit; atexit.register(lambda: print(sorted({'numpy', 'rich', 'tvm', 'torch'} & set(sys.modules))))"
    )
    code = f"import sys; {check}; from anole.__main__ import main; main(prog_name='anole')"
    for line, word in (
        ("anole compile m", "mine"),
        ("anole tune x --preset d", "dcoc"),
        ("anole run old/", "old/mine"),
    ):
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_ANOLE_COMPLETE": "bash_complete"}
        environment = {**os.environ, "PYTHONPATH": str(HOME / "lib"), **asked}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == (f"plain,{word}\n[]\n", "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_script(project: Path) -> None:
    program = project / "bin/anole"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} -m anole "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(HOME / "lib"), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    script = (
        'eval "$(anole completion bash)"; COMP_WORDS=(anole compile ne); COMP_CWORD=2; '
        '_anole_completion anole ne compile; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("net-cpu-random net-cpu-dcoc\n", "")


@pytest.mark.parametrize(
    ("shell", "part"), [("bash", "complete -o"), ("zsh", "#compdef anole"), ("fish", "complete --")]
)
def test_each_shell_has_a_script(shell: str, part: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0 and part in result.output and "_ANOLE_COMPLETE" in result.output
