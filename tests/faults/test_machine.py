"""A fault of the machine ends a stage with a message and is not recorded; without it, the same command continues."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ..workflow.conftest import Project
from .conftest import BUILD, EXTRACT, RECORDED, message_of, tune_command
from .ledger import AllFigures, Figures, Ledger, n_failed, trials_in, trials_of
from .processes import SHELL, Running, device_process_of
from .small_disk import SmallDisk

pytestmark = pytest.mark.workflow

MORE = RECORDED + 4
slow = pytest.mark.slow

LINKERS = {
    "no linker": None,
    "a linker without space": 'echo "ld: final link failed: No space left on device" >&2; exit 1',
    "a linker that fails once": 'test -e {once} && exec {ld} "$@"; touch {once}; echo "ld: I/O error" >&2; exit 1',
    "a linker that is killed": "kill -KILL $$",
    "builders that are killed": "kill -KILL $PPID",
    "a builder that is killed once": 'test -e {once} && exec {ld} "$@"; touch {once}; kill -KILL $PPID',
}
"""Scripts that replace ``ld``. A builder that is killed while linking looks like one killed when memory ran out."""


def path_with(linker: str | None, folder: Path) -> str:
    """Return a PATH with a few tools of this machine and the given linker, but without compilers."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("sh", "bash", "touch", "test", "kill", "echo", "env", "uname", "nsenter"):
        if (found := shutil.which(name)) is not None:
            (tools / name).symlink_to(found)
    if linker is not None:
        script = tools / "ld"
        script.write_text("#!/bin/sh\n" + linker.format(once=folder / "once", ld=shutil.which("ld")))
        script.chmod(0o755)
    return str(tools)


def check_trials(running: Running, ledger: Ledger, figures: Figures) -> None:
    """Assert that a tuner with a fault lost nothing, recorded no failure and left no process."""
    (shard,) = ledger.shards()
    lost, doubled, orphans, false = ledger.lost(), ledger.doubled(), running.orphans(), n_failed(shard)
    figures.add(lost=lost, doubled=doubled, false=false, orphans=len(orphans))
    assert (lost, doubled, false, orphans) == (0, 0, 0, []), running.output


def check_complete(running: Running, ledger: Ledger) -> None:
    """Assert that a tuner without a fault completed its trials."""
    assert running.wait() == 0, running.output
    (shard,) = ledger.shards()
    assert (ledger.lost(), n_failed(shard)) == (0, 0)
    assert [trial["number"] for trial in trials_of(shard)] == list(range(MORE))


@pytest.mark.parametrize(
    "fault",
    [
        name if name in ("no linker", "a builder that is killed once") else pytest.param(name, marks=slow)
        for name in LINKERS
    ],
)
def test_a_tuner_records_no_fault_of_the_linker_or_of_a_builder(
    tuned_cpu: Project, tmp_path: Path, figures: AllFigures, fault: str
) -> None:
    command, ledger = [*SHELL, *tune_command(tuned_cpu.folder, "cpu", MORE)], Ledger(tuned_cpu.folder)
    ledger.note()
    running = Running(command, tuned_cpu.folder, {"PATH": path_with(LINKERS[fault], tmp_path)})
    if running.wait() != 0 or "once" not in fault:
        assert running.wait() != 0, running.output
        message_of(running.output)
    check_trials(running, ledger, figures["tune", fault])
    check_complete(Running(command, tuned_cpu.folder), ledger)


@slow
def test_a_tuner_records_no_failure_if_the_device_process_is_killed(tuned_cpu: Project, figures: AllFigures) -> None:
    command, ledger = [*SHELL, *tune_command(tuned_cpu.folder, "cpu", MORE)], Ledger(tuned_cpu.folder)
    ledger.note()
    running, runner = Running(command, tuned_cpu.folder), None
    while runner is None:
        assert running.process.poll() is None, "no candidate was seen"
        runner = device_process_of(running)
    runner.kill()
    if running.wait() != 0:
        message_of(running.output)
    check_trials(running, ledger, figures["tune", "a device process that is killed"])
    check_complete(Running(command, tuned_cpu.folder), ledger)


@pytest.mark.parametrize("free_bytes", [1 << 14, *(pytest.param(free, marks=slow) for free in (0, 1 << 12, 1 << 16))])
def test_a_tuner_records_no_failure_if_the_temporary_folder_is_full(
    tuned_cpu: Project, disk: SmallDisk, figures: AllFigures, free_bytes: int
) -> None:
    command, ledger = [*SHELL, *tune_command(tuned_cpu.folder, "cpu", MORE)], Ledger(tuned_cpu.folder)
    ledger.note()
    with disk.impose(free_bytes):
        running = disk.start(*command, folder=tuned_cpu.folder, environment={"TMPDIR": str(disk.folder)})
        # Python uses another folder if this one has no space for even a few bytes.
        if running.wait() != 0 or free_bytes == 1 << 14:
            assert running.wait() != 0, "a full disk went unnoticed"
            assert "space" in message_of(running.output)
        check_trials(running, ledger, figures["tune", "full TMPDIR"])
    again = disk.start(*command, folder=tuned_cpu.folder, environment={"TMPDIR": str(disk.folder)})
    check_complete(again, ledger)


@pytest.mark.parametrize("free_bytes", [0, pytest.param(1 << 14, marks=slow)])
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(EXTRACT["npu"], marks=slow),
        pytest.param(["compile", BUILD["npu"]], marks=slow),
        pytest.param(["evaluate", f"builds/{BUILD['npu']}"], marks=slow),
        ["merge"],
        pytest.param(["import", "db/shards"], marks=slow),
    ],
    ids=lambda command: command[0] if isinstance(command, list) else None,
)
def test_a_stage_succeeds_or_reports_that_the_temporary_folder_is_full(
    built: Project, disk: SmallDisk, command: list[str], free_bytes: int
) -> None:
    before = (built.folder / f"builds/{BUILD['npu']}/build.json").read_bytes()
    with disk.impose(free_bytes):
        running = disk.start(*SHELL, *command, folder=built.folder, environment={"TMPDIR": str(disk.folder)})
        if running.wait() != 0:
            # LLVM ends the process if it cannot write an object file.
            assert "LLVM ERROR: IO failure" in running.output or "space" in message_of(running.output)
            assert (built.folder / f"builds/{BUILD['npu']}/build.json").read_bytes() == before
        assert trials_in(built.folder / "db/tuning.sqlite") == RECORDED
    again = disk.start(*SHELL, *command, folder=built.folder, environment={"TMPDIR": str(disk.folder)})
    assert again.wait() == 0, again.output


@slow
@pytest.mark.parametrize("target", ["npu", "cpu"])
def test_compiling_without_a_compiler_reports_it_and_keeps_the_build(
    request: pytest.FixtureRequest, tmp_path: Path, target: str
) -> None:
    project: Project = request.getfixturevalue({"npu": "built", "cpu": "tuned_cpu"}[target])
    command = [*SHELL, "compile", BUILD[target]]
    if target == "cpu":
        assert Running(command, project.folder).wait() == 0
    folder = project.folder / "builds" / BUILD[target]
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    running = Running(command, project.folder, {"PATH": path_with(None, tmp_path)})
    assert running.wait() != 0
    assert "compiler" in message_of(running.output)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    again = Running(command, project.folder)
    assert again.wait() == 0, again.output
