from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import click
import numpy as np
import onnx
import pytest
import yaml

from anole.__main__ import main
from anole.documents.document import as_argument
from anole.project.pipeline import Pipeline
from anole.targets.cpu.settings import describe_cpu
from anole.task import Task

from .extract.onnx.models import model_of
from .record_project import Project
from .terminal import anole

COMMANDS = {name: main.get_command(click.Context(main), name) for name in main.list_commands(click.Context(main))}


@pytest.fixture(autouse=True)
def empty_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


NAMES = """bench describe quantize extract tune tune-together merge refine compile evaluate export run try profile
compare completion plan report doctor calibrate serve vta import export-records explore lock init accelerator"""


def test_every_stage_is_a_command_with_help() -> None:
    assert set(COMMANDS) == set(NAMES.split())
    accelerator = COMMANDS["vta"]
    assert isinstance(accelerator, click.Group) and set(accelerator.commands) == {"cycles", "trace", "report"}
    assert re.findall("^  ([a-z-]+)", anole("--help").stdout.partition("--help")[2], re.MULTILINE) == list(COMMANDS)
    within = {f"vta {name}": command for name, command in accelerator.commands.items()}
    for name, command in {**COMMANDS, **within}.items():
        assert command.get_short_help_str(), name
        assert anole(*name.split(), "--help").exit_code == 0


def test_former_names_still_work() -> None:
    found = anole("quantise", "net", "--least-db", "20")
    assert found.stderr == anole("quantize", "net", "--target-db", "20").stderr
    assert "there is no such file" in found.stderr


def declare(project: Path, **sections: object) -> None:
    """Write a models.yaml with the model `net`."""
    net = {"source": "torchvision:alexnet", "inputs": {"x": [1, 3, 64, 64]}}
    (project / "models.yaml").write_text(yaml.safe_dump({"models": {"net": net}, **sections}))


def test_calibrating_reports_what_is_left_and_rejects_unknown_targets(empty_project: Path) -> None:
    declare(empty_project, targets={"cpu": {"kind": "cpu"}}, builds=[{"model": "net", "target": "cpu"}])
    found = anole("calibrate", "cpu", "--minutes", "0")
    assert re.fullmatch(
        r"cpu: 0 of \d+ common layers are calibrated; run the command again to continue\n", found.stdout
    )
    refused = anole("calibrate", "gpu")
    assert refused.exit_code == 2 and "found 'gpu'" in refused.stderr and "cpu" in refused.stderr
    assert not (empty_project / "db").exists()


def test_an_unknown_accelerator_is_reported(empty_project: Path) -> None:
    edge = {"models": ["net"], "targets": ["npu"]}
    declare(empty_project, targets={"npu": {"kind": "vta", "hardware": "search"}}, accelerators={"edge": edge})
    refused = anole("accelerator", "egde")
    assert refused.exit_code == 2 and "found 'egde', which is not one of the accelerators" in refused.stderr
    refused = anole("accelerator", "edge")
    assert refused.exit_code == 2 and "work/models/net/npu.json: there is no such file" in refused.stderr


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_example_of_a_command_is_valid(name: str) -> None:
    example = COMMANDS[name].epilog
    assert example and example.startswith(f"Example: anole {name}"), "the help of every command ends with an example"
    arguments = shlex.split(example.removeprefix("Example: anole").partition(" > ")[0])
    with main.make_context("anole", list(arguments)) as context:
        command: click.Command = main
        while isinstance(command, click.Group):
            _, found, arguments = command.resolve_command(context, arguments)
            assert found is not None
            command = found
        command.make_context(name, arguments, parent=context).close()
        assert all(option.help for option in command.params if isinstance(option, click.Option)), name


def test_an_error_is_one_line_without_traceback() -> None:
    command = [sys.executable, "-m", "anole", "plan"]
    done, result = subprocess.run(command, capture_output=True, text=True, check=False), anole("plan")
    assert (done.returncode, done.stdout, done.stderr) == (result.exit_code, "", result.stderr)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert result.stderr.startswith("anole: models.yaml: there is no such file in ")


_NEIGHBOURS = "Invalid value for '--neighbours': found {!r}; distinct numbers from 0 to 256 are expected, such as 0,1,2"
_INVALID_ADDRESS = "anole: --measure: rpc: found 'here'; give the `host:port` of a tracker or a server\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tun"], "No such command 'tun'"),
        (["tune"], "Missing argument 'TASK'"),
        (["tune", "x.json", "--trials", "-1"], "not in the range"),
        (["tune", "x.json", "--builders", "0"], "is not in the range"),
        (["tune", "x.json", "--tuner", "{"], "is not JSON"),
        (["tune", "x.json", "--tuner", "[1]"], "is not a JSON object"),
        (["tune", "x.json", "--preset", "autotvn"], "autotvm"),
        (["tune", "x.json", "--measure", '{"rpc": "here"}'], _INVALID_ADDRESS),
        (["tune", "none.json"], "none.json: there is no such file; `snakemake --forcerun extract` writes it again"),
        (["serve", "--key", "zen"], "give --tracker and --key together, or neither"),
        (["serve", "--tracker", "here:9190"], "give --tracker and --key together, or neither"),
        *(
            (["evaluate", "builds/absent", "--neighbours", text], _NEIGHBOURS.format(text))
            for text in ("1,x", "-1", "", "1,,2", "1,1", "0,257", "0 1")
        ),
    ],
)
def test_wrong_usage_is_reported_before_anything_is_done(
    empty_project: Path, arguments: list[str], message: str
) -> None:
    result = anole(*arguments)
    assert result.exit_code == 2 and message in result.stderr
    assert not list(empty_project.iterdir())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "is not JSON: Expecting property name"),
        ("[1]", "is not a JSON object"),
        ("\xff", "is not JSON: "),
    ],
)
def test_an_argument_in_a_file_is_checked(empty_project: Path, content: str | None, problem: str) -> None:
    if content is not None:
        (empty_project / "tuner.json").write_bytes(content.encode("latin-1"))
    result = anole("tune", "x.json", "--tuner", "@tuner.json")
    assert result.exit_code == 2
    assert f"Invalid value for '--tuner': '@tuner.json' {problem}" in result.stderr


def test_an_argument_can_be_in_a_file(empty_project: Path) -> None:
    (empty_project / "measure.json").write_text('{"rpc": "here"}')
    assert anole("tune", "x.json", "--measure", "@measure.json").stderr == _INVALID_ADDRESS


ON_NODES = """
models: {net: {source: 'torchvision:alexnet', inputs: {x: [1, 3, 64, 64]}}}
targets:
  zen: {kind: cpu, threads: 1, nodes: {partition: amd}}
  other: {kind: cpu, mcpu: x86-64-v2, threads: 1, model: Another CPU, nodes: {partition: amd}}
builds: [{model: net, target: zen, trials: 0}]
"""


def test_a_node_describes_itself(empty_project: Path) -> None:
    (empty_project / "models.yaml").write_text(ON_NODES)
    assert anole("describe", "zen").exit_code == 0
    found = json.loads((empty_project / "work/targets/zen.json").read_text())
    assert (found["description"]["kind"], found["description"]["threads"]) == ("cpu", 1)
    asked = json.dumps(found["asked"])
    assert anole("describe", "zen", "--asked", asked, "--output", "own.json").exit_code == 0
    assert json.loads((empty_project / "own.json").read_text()) == found


def test_a_node_with_other_hardware_describes_nothing(empty_project: Path) -> None:
    (empty_project / "models.yaml").write_text(ON_NODES)
    result = anole("describe", "other")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "cpu Another CPU with 1 threads: this machine's CPU is " in result.stderr
    assert "found 'zn', which is not one of the targets; did you mean 'zen'?" in anole("describe", "zn").stderr
    assert not (empty_project / "work").exists()


def test_required_measurements_are_rejected_on_another_machine(empty_project: Path) -> None:
    project = Project(empty_project)
    project.extract("net", [(project.CONV, 1)])
    file = project.compile("net", [(project.CONV, 1, None)])
    plain = {name: value for name, value in json.loads(file.read_text()).items() if name != "crc"}
    plain["target_description"] = describe_cpu("x86-64-v2", 1, "Another CPU")
    file.write_text(json.dumps(plain))
    message = "cpu Another CPU with 1 threads: this machine's CPU is "
    result = anole("evaluate", "builds/net-cpu", "--required")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith(f"anole: build net-cpu: {message}")
    assert not (empty_project / "work/evaluations").exists()
    (empty_project / "models.yaml").write_text(
        ON_NODES.replace("target: zen, trials: 0", "target: other, trials: 0, refine: 1, name: small")
    )
    pipeline = Pipeline.load(empty_project / "models.yaml")
    (empty_project / "order.json").write_text(json.dumps(as_argument(pipeline.order(pipeline.spec.builds["small"]))))
    order = ("--order", "@order.json", "--manifest", "none.json", "--candidates", "1")
    result = anole("refine", "small", *order, "--required")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith(f"anole: build small: {message}")
    assert not (empty_project / "work/refined").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not JSON"),
        ("{}", "is not a task: the target is None, not an object with a kind"),
        ("[1]", "holds [1], not an object"),
        (
            '{"workload": {"operator": "conv9d"}, "target": {"kind": "cpu"}, "template_version": 1}',
            "is not a task: the operator is 'conv9d', not one of conv2d, dense, batch_matmul, attention",
        ),
    ],
)
def test_a_broken_task_is_rejected(empty_project: Path, text: str, problem: str) -> None:
    (empty_project / "task.json").write_text(text)
    result = anole("tune", "task.json")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"task.json: {problem}" in result.stderr


def test_an_unknown_model_is_reported_with_suggestions(empty_project: Path) -> None:
    declare(empty_project, targets={"cpu": {"kind": "cpu"}}, builds=[{"model": "net", "target": "cpu"}])
    result = anole("extract", "nett", "--target", "cpu")
    assert "found 'nett', which is not one of the models; did you mean 'net'?" in result.stderr
    result = anole("extract", "net", "--target", "cuda")
    assert "targets: found 'cuda', which is not one of the targets" in result.stderr


@pytest.mark.parametrize("build", ["no-such-build", "builds/no-such-build", "builds/no-such-build/"])
def test_merging_nothing_makes_an_empty_database(
    empty_project: Path, caplog: pytest.LogCaptureFixture, build: str
) -> None:
    assert anole("merge", build).exit_code == 0
    assert "no-such-build: is skipped: it is not compiled yet" in caplog.text
    assert (empty_project / "db/tuning.sqlite").exists()


def test_a_damaged_database_is_reported_and_replaced(empty_project: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert anole("merge", "any", "--seal", "--stamp", "work/stamp.json").exit_code == 0
    assert "db/shards: added checksums to 0 shards" in caplog.text
    stamp = json.loads((empty_project / "work/stamp.json").read_text())
    assert (stamp["database"], stamp["builds"], stamp["merged"]["runs"]) == ("db/tuning.sqlite", [], 0)
    (empty_project / "db/tuning.sqlite").write_text("nothing that SQLite wrote")
    assert anole("merge", "any", "--stamp", "work/stamp.json").exit_code == 0
    assert "was rebuilt from shards and documents; the old file was kept as tuning.sqlite.damaged-" in caplog.text
    assert "db/tuning.sqlite: is damaged, or is not a database of trials: file is not a database" in caplog.text
    assert json.loads((empty_project / "work/stamp.json").read_text())["merged"]["replaced"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENOENT])
def test_disk_errors_are_one_line_and_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    error = OSError(number, os.strerror(number), "work/x.json")
    monkeypatch.setattr("anole.merge.stage.merge_builds", Mock(side_effect=error))
    result = anole("merge", "any")
    if number == errno.ENOENT:
        assert isinstance(result.exception, OSError)
    else:
        message = f"anole: work/x.json: cannot be read or written: {os.strerror(number)}\n"
        assert (result.exit_code, result.stderr) == (2, message)


_HEAVY = ["numpy", "onnx", "pandas", "rich", "sqlite_utils", "torch", "torchvision", "tvm", "xgboost"]


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("from anole.__main__ import main; main(['--help'])", []),
        ("import anole.config.entries, anole.config.onnx_files", []),
        ("import anole.merge.stage", ["sqlite_utils"]),
    ],
    ids=["help", "entries", "merge"],
)
def test_starting_imports_nothing_heavy(code: str, needed: list[str]) -> None:
    look = f"atexit.register(lambda: print(sorted({{*{_HEAVY}}} & set(sys.modules))))"
    command = [sys.executable, "-c", f"import atexit, sys; {look}; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(needed)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project outside the working directory."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "tiny_networks.py", folder / "tiny.py")
    (folder / "models.yaml").write_text(
        "models: {net: {source: 'torch:tiny:residual', inputs: {x: [1, 3, 16, 16]}}}\n"
        "targets: {cpu: {kind: cpu, threads: 1}}\n"
        "builds: [{model: net, target: cpu, trials: 0, refine: 1, name: small}]\n"
    )
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return folder


def test_a_project_may_be_in_another_folder(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path.cwd()
    for command in (["extract", "net", "--target", "cpu"], ["refine", "small"], ["compile", "small"], ["merge"]):
        monkeypatch.chdir(here)
        result = anole(*command, "--spec", "../project/models.yaml")
        assert result.exit_code == 0, result.output
    monkeypatch.chdir(here)
    result = anole("plan", "--json", "--spec", "../project/models.yaml")
    plan = json.loads(result.stdout)
    assert [step["stage"] for step in plan["steps"]] == ["evaluate", "merge"]
    assert plan["tasks"][0]["label"].startswith("conv2d ") and plan["tasks"][0]["receipt"].endswith("/0.json")
    assert (elsewhere / "builds/small/model.so").exists() and (elsewhere / "work/refined/small.json").exists()
    assert (elsewhere / "db/tuning.sqlite").exists()
    assert list(here.iterdir()) == []
    result = anole("extract", "net", "--target", "cpu", "--spec", "../project/models.yaml", "--manifest", "own.json")
    assert result.exit_code == 0 and {path.name for path in here.iterdir()} == {"own.json", "own.network"}


def test_paths_of_model_files_are_relative_to_the_project(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path.cwd()
    file = elsewhere / "net.onnx"
    graph = "(float[1,4] x) => (float[1,3] y) {y = MatMul (x, weight)}"
    onnx.save(model_of(graph, weight=np.ones((4, 3), np.float32)), file)
    spec = yaml.safe_load((elsewhere / "models.yaml").read_text())
    (elsewhere / "models.yaml").write_text(yaml.safe_dump({**spec, "models": {"net": {"source": "onnx:net.onnx"}}}))

    def reasons_to_extract() -> list[str]:
        monkeypatch.chdir(here)
        planned = anole("plan", "--json", "--spec", "../project/models.yaml")
        return [step["reason"] for step in json.loads(planned.stdout)["steps"] if step["stage"] == "extract"]

    assert reasons_to_extract() == ["new"]
    result = anole("extract", "net", "--target", "cpu", "--spec", "../project/models.yaml")
    assert result.exit_code == 0, result.output
    assert reasons_to_extract() == []
    manifest = elsewhere / "work/models/net/cpu.json"
    os.utime(file, ns=(manifest.stat().st_mtime_ns + 1,) * 2)
    assert reasons_to_extract() == ["net.onnx changed"]


@pytest.mark.parametrize("absolute", [False, True])
def test_a_build_in_another_folder_is_merged_instead_of_a_local_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absolute: bool
) -> None:
    mine, theirs = (Project(tmp_path / name) for name in ("mine", "theirs"))
    for project, preset in ((mine, "random"), (theirs, "anole")):
        project.extract("net", [(project.CONV, 1)])
        project.compile("net", [(project.CONV, 1, None)], preset=preset)
        project.evaluate("net-cpu")
    monkeypatch.chdir(mine.folder)
    folder = Path("../theirs/builds/net-cpu")
    assert anole("merge", str(folder.resolve() if absolute else folder)).exit_code == 0
    assert mine.rows("select name, preset from build") == [{"name": "net-cpu", "preset": "anole"}]
    assert len(mine.rows("select * from evaluation")) == 2
    assert anole("merge", "net-cpu", "--database", "own.sqlite").exit_code == 0
    mine.database = Path("own.sqlite")
    assert mine.rows("select name, preset from build") == [{"name": "net-cpu", "preset": "random"}]


def test_a_folder_of_records_is_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Shards of any targets are merged without a models.yaml, and their records can be passed to other hubs."""
    caplog.set_level("INFO")
    one, two = (Project(tmp_path / name) for name in ("one", "two"))
    one.tune(one.run_of(one.CONV), one.CONV, [1e-3, None])
    abacus = Task(one.DENSE.workload, {"kind": "abacus", "beads": 10}, 1)
    two.tune(two.run_of(abacus), abacus, [2e-3])
    hub = tmp_path / "hub"
    hub.mkdir()
    monkeypatch.chdir(hub)
    result = anole("import", str(one.shards), str(two.shards))
    assert (result.exit_code, result.stdout.count("1 new runs")) == (0, 2)
    assert anole("merge").exit_code == 0
    assert "db/tuning.sqlite: 2 runs (2 read), 3 trials" in caplog.text
    assert anole("merge", "--shards", str(one.shards), "--database", "other.sqlite").exit_code == 0
    assert "other.sqlite: 1 runs (1 read), 2 trials" in caplog.text
    assert anole("export-records", "new", "--target", "abacus").stdout == "new: 1 runs of 1 tasks, 1 trials\n"
    assert anole("export-records", "old", "--from", "db/tuning.sqlite", "--preset", "autotvm").exit_code == 0
    assert "give the name of a new folder" in anole("export-records", "new.sqlite").stderr
    later = anole("export-records", "later", "--since", "2027-01-01")
    assert (later.exit_code, later.stderr) == (2, "anole: db/shards: no run satisfies all conditions\n")
    assert anole("export-records", "since", "--since", "2026-11-21T10:00:00Z").exit_code == 0
    assert "does not match the formats" in anole("export-records", "since", "--since", "yesterday").stderr
    result = anole("import", "new", "other.sqlite", "--shards", "third")
    assert [line.split(": ", 1)[1][:14] for line in result.stdout.splitlines()] == ["1 new runs, 0 ", "1 new runs, 0 "]
    assert "new (exported on " in result.stdout


@pytest.mark.parametrize("arguments", [["merge"], ["merge", "--spec", "models.yaml"]])
def test_without_models_and_records_nothing_is_merged(empty_project: Path, arguments: list[str]) -> None:
    if "--spec" in arguments:
        (empty_project / "db/shards").mkdir(parents=True)
    result = anole(*arguments)
    assert result.exit_code == 2
    assert "models.yaml: there is no such file" in result.stderr
    assert not (empty_project / "db/tuning.sqlite").exists()
