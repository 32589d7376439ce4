"""The terminal output of a run, by Anole's logger plugin, or by Snakemake if requested."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from snakemake.settings.types import OutputSettings
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

from ..terminal import terminal_output_of
from .conftest import ROOT

pytestmark = pytest.mark.workflow

KEY = hashlib.sha256(b"a task").hexdigest()

SNAKEFILE = rf"""
rule all:
    input: "{KEY}/8.json", "plain.txt"


rule tune:
    output: "{{key}}/8.json"
    log: "logs/{{key}}.log"
    shell:
        "printf '12:00:00 conv2d 64->64 k3x3: %s\n' 0/8 5/8 > {{log}}; sleep 2; "
        "printf '12:00:02 %s\n' 'warning: it is\nslow' 'conv2d 64->64 k3x3: 90.0 GFLOP/s in 8 trials' >> {{log}}; "
        "touch {{output}}"


rule copy:
    output: "plain.txt"
    shell: "echo said by the rule; touch {{output}}"


rule refuse:
    output: "refused.txt"
    log: "logs/refuse.log"
    shell: "echo 'anole: nets:bad() failed' > {{log}}; exit 2"


rule crash:
    output: "crashed.txt"
    log: "logs/crash.log"
    shell: "echo Segmentation fault > {{log}}; exit 3"
"""

TUNED = re.compile(r"^tune      conv2d 64->64 k3x3 {14}90\.0 GFLOP/s in 8 trials +[2-9]\.\d s$", re.MULTILINE)


def snakemake(
    folder: Path, *arguments: str, stderr: int = subprocess.STDOUT, **variables: str
) -> subprocess.Popen[bytes]:
    """Start Snakemake on the rules above with Anole's default profile."""
    (folder / "Snakefile").write_text(SNAKEFILE)
    command = [sys.executable, "-m", "snakemake", "--cores", "1"]
    command += ["--workflow-profile", str(ROOT / "profiles/default"), *arguments]
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "CI")}
    environment = {**kept, "TERM": "xterm-256color", "COLUMNS": "100", **variables}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr)


def output_of(folder: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """Return the exit code and output of Snakemake without a terminal."""
    process = snakemake(folder, *arguments, **variables)
    output, _ = process.communicate(timeout=120)
    return process.returncode, output.decode()


def test_without_a_terminal_each_job_is_one_plain_line(tmp_path: Path) -> None:
    code, output = output_of(tmp_path)
    lines = output.splitlines()
    assert code == 0 and TUNED.search(output), output
    assert lines[0].startswith("Using workflow specific profile ")
    assert sorted(line.split()[0] for line in lines[1:]) == ["copy", "said", "slow", "tune", "warning:"]
    assert "warning: it is\nslow\n" in output and "said by the rule\n" in output
    assert "\x1b" not in output and "\r" not in output and KEY not in output
    code, output = output_of(tmp_path)
    assert (code, output.splitlines()[1:]) == (
        0,
        ["Nothing to be done (all requested files are present and up to date)."],
    )


@pytest.mark.guard
@pytest.mark.parametrize("no_color", ["", "1"])
def test_on_a_terminal_the_progress_is_at_the_bottom(tmp_path: Path, no_color: str) -> None:
    output = terminal_output_of(lambda terminal: snakemake(tmp_path, stderr=terminal, NO_COLOR=no_color))
    has_colors = bool(re.search(r"\x1b\[(?:\d+;)*3\d[;m]", output))
    assert has_colors is not bool(no_color)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output).replace("\r", "\n")
    assert TUNED.search(text), text
    # Without colors, the rest of the bar is blank.
    assert re.search(r"^[━╸ ]+.* [01]/3 jobs", text, re.MULTILINE) and re.search(r"^━+.* 3/3 jobs", text, re.MULTILINE)
    assert "\ntune conv2d 64->64 k3x3: 5/8" in text
    # The cursor, which the progress hides, is visible again.
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")


def test_the_error_of_a_failed_job_is_shown_in_full(tmp_path: Path) -> None:
    code, output = output_of(tmp_path, "refused.txt", "crashed.txt")
    assert code == 1
    assert "\nrefuse failed: logs/refuse.log:\nanole: nets:bad() failed\n" in output
    assert "\nError in rule crash:\n" in output and "Logfile logs/crash.log:\n" in output
    assert "\nSegmentation fault\n" in output
    assert "echo Segmentation fault > logs/crash.log; exit 3" in output and "non-zero exit status 3" in output
    assert "exit 2" not in output
    assert output.rstrip().endswith("WorkflowError:\nAt least one job did not complete successfully.")


@pytest.mark.guard
def test_a_quiet_run_shows_no_jobs(tmp_path: Path) -> None:
    code, output = output_of(tmp_path, "plain.txt", "--quiet")
    assert (code, output.splitlines()[1:]) == (0, ["said by the rule"])


@pytest.mark.parametrize("setting", ["verbose", "printshellcmds", "debug_dag", "dryrun"])
def test_snakemake_writes_its_own_output_if_requested(setting: str) -> None:
    plugin = LoggerPluginRegistry().get_plugin("anole")
    assert plugin.log_handler(OutputSettings(), None).writes_to_stream
    assert not plugin.log_handler(OutputSettings(**{setting: True}), None).writes_to_stream


@pytest.mark.guard
def test_the_profile_works_without_the_installed_plugin(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    script = f"""
import sys
sys.path = [entry for entry in sys.path if entry != {str(ROOT / "lib")!r}]
from snakemake.cli import main
main(["--cores", "1", "--workflow-profile", {str(ROOT / "profiles/default")!r}, "plain.txt"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "1 of 1 steps (100%) done" in done.stderr
