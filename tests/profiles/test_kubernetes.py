"""The scripts of the profile for Kubernetes: the manifests that they make, and what they report about jobs."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "profiles/kubernetes"
SUBMIT = runpy.run_path(str(FOLDER / "submit.py"))
STATUS = runpy.run_path(str(FOLDER / "status.py"))
TUNE = {"type": "single", "rule": "tune_together", "threads": 8, "resources": {"mem_mb": 4000, "device": 1, "gpu": 0}}


def template() -> Any:
    text = (FOLDER / "job.yaml").read_text()
    return yaml.safe_load(text.replace("registry.example.org", "registry.test"))


def job(properties: dict[str, Any], base: Any = None, packages: str = "", **resources: object) -> Any:
    asked = {**properties, "resources": {**properties["resources"], **resources}}
    return SUBMIT["job_of"](base or template(), asked, Path("/project/a/job.sh"), "/project/a", packages)


def pod(*arguments: Any, **options: Any) -> Any:
    return job(*arguments, **options)["spec"]["template"]["spec"]


def test_a_job_runs_the_script_in_the_project_of_its_volume() -> None:
    made = job(TUNE)
    assert (made["apiVersion"], made["kind"], made["spec"]["backoffLimit"]) == ("batch/v1", "Job", 0)
    assert made["metadata"]["generateName"] == "anole-tune-together-"
    spec = made["spec"]["template"]["spec"]
    (one,) = spec["containers"]
    assert (one["command"], one["workingDir"]) == (["/bin/sh", "/project/a/job.sh"], "/project/a")
    assert one["image"] == "registry.test/anole"
    (volume,) = spec["volumes"]
    assert [mount["name"] for mount in one["volumeMounts"]] == [volume["name"]]
    assert "persistentVolumeClaim" in volume and spec["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("rule", "begin"),
    [
        ({"rule": "anole_tune"}, "anole-anole-tune-"),
        ({"groupid": "tune_Zen.5+x"}, "anole-tune-zen-5-x-"),
        ({"groupid": "tune_" + 80 * "t"}, f"anole-tune-{35 * 't'}-"),
    ],
)
def test_a_name_is_one_that_kubernetes_takes(rule: dict[str, str], begin: str) -> None:
    unnamed = {name: value for name, value in TUNE.items() if name != "rule"}
    assert job({**unnamed, **rule})["metadata"]["generateName"] == begin


def test_what_measures_a_processor_has_its_node_for_itself() -> None:
    (term,) = pod(TUNE)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname" and term["namespaceSelector"] == {}
    assert term["labelSelector"] == {"matchExpressions": [{"key": "anole-measures", "operator": "Exists"}]}
    assert job(TUNE)["spec"]["template"]["metadata"]["labels"]["anole-measures"] == "yes"
    other = job(TUNE, device=0)
    assert "affinity" not in other["spec"]["template"]["spec"]
    assert other["spec"]["template"]["metadata"]["labels"]["anole-measures"] == "no"


@pytest.mark.parametrize(
    ("threads", "resources", "requests", "limits"),
    [
        (8, {}, {"cpu": "7", "memory": "4000M"}, {"memory": "4000M"}),
        (1, {}, {"cpu": "1", "memory": "4000M"}, {"memory": "4000M"}),
        (4, {"device": 0}, {"cpu": "4", "memory": "4000M"}, {"memory": "4000M"}),
        (
            4,
            {"device": 0, "gpu": 1, "mem_mb": 8000},
            {"cpu": "4", "memory": "8000M"},
            {"memory": "8000M", "nvidia.com/gpu": "1"},
        ),
    ],
)
def test_a_job_asks_for_what_it_needs(threads: int, resources: dict[str, int], requests: Any, limits: Any) -> None:
    (one,) = pod({**TUNE, "threads": threads}, **resources)["containers"]
    assert one["resources"] == {"requests": requests, "limits": limits}


def test_a_job_without_memory_or_time_is_not_limited() -> None:
    made = pod({**TUNE, "resources": {}})
    assert "activeDeadlineSeconds" not in made and "nodeSelector" not in made
    assert made["containers"][0]["resources"] == {"requests": {"cpu": "8"}, "limits": {}}
    assert pod(TUNE, runtime=240)["activeDeadlineSeconds"] == 4 * 3600


def test_a_node_is_chosen_by_its_labels() -> None:
    assert pod(TUNE, node_selector="cpu=zen5, disk=ssd")["nodeSelector"] == {"cpu": "zen5", "disk": "ssd"}
    for wrong in ("zen5", "cpu=zen5,", "=zen5", "cpu="):
        with pytest.raises(ValueError, match=f"node_selector: found {wrong!r}; label=value,label=value is expected"):
            pod(TUNE, node_selector=wrong)


def test_other_content_of_job_yaml_stays() -> None:
    base = template()
    base["metadata"] = {"namespace": "tuning"}
    spec = base["spec"]["template"]["spec"]
    spec["nodeSelector"], spec["tolerations"] = {"pool": "big"}, [{"operator": "Exists"}]
    spec["affinity"] = {"nodeAffinity": {}}
    spec["containers"][0]["env"] = [{"name": "ANOLE_LOCKS", "value": "/locks"}]
    spec["containers"][0]["resources"] = {"limits": {"ephemeral-storage": "1G"}}
    made = job(TUNE, base, "/project/packages", node_selector="cpu=zen5")
    assert made["metadata"]["namespace"] == "tuning"
    inner = made["spec"]["template"]["spec"]
    assert (inner["nodeSelector"], inner["tolerations"]) == ({"pool": "big", "cpu": "zen5"}, [{"operator": "Exists"}])
    assert set(inner["affinity"]) == {"nodeAffinity", "podAntiAffinity"}
    (one,) = inner["containers"]
    assert [each["name"] for each in one["env"]] == ["ANOLE_LOCKS", "PYTHONPATH"]
    assert one["resources"]["limits"] == {"ephemeral-storage": "1G", "memory": "4000M"}
    assert spec["containers"][0]["resources"] == {"limits": {"ephemeral-storage": "1G"}}, "the base is as it was"


def test_a_template_that_was_not_edited_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n# properties = {json.dumps(TUNE)}\ntrue\n")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([FOLDER / "submit.py", script], env=environment, capture_output=True, text=True, check=False)
    told = "submit.py: job.yaml: the image is still registry.example.org/anole; replace it with your own\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ([], "running"),
        ([{"type": "Suspended", "status": "True"}], "running"),
        ([{"type": "Failed", "status": "False"}], "running"),
        ([{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}], "success"),
        ([{"type": "FailureTarget", "status": "True"}], "running"),
        ([{"type": "FailureTarget", "status": "True"}, {"type": "Failed", "status": "True"}], "failed"),
    ],
)
def test_a_job_is_as_its_conditions_say(conditions: list[dict[str, str]], status: str) -> None:
    assert STATUS["status_of"](json.dumps({"kind": "Job", "status": {"conditions": conditions}})) == status


def test_a_job_that_is_gone_has_failed_and_one_that_nobody_knows_of_runs(tmp_path: Path) -> None:
    assert STATUS["status_of"]("") == "failed"
    assert STATUS["status_of"]('{"kind": "Job", "status": {}}') == "running"
    unreachable = tmp_path / "kubectl"
    unreachable.write_text("#!/bin/sh\necho no route to host >&2\nexit 1\n")
    unreachable.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([FOLDER / "status.py", "x"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "running\n", "no route to host\n")


def test_the_scripts_are_programs() -> None:
    programs = {path.name for path in FOLDER.glob("*.py") if os.access(path, os.X_OK)}
    assert programs == {"submit.py", "status.py", "cancel.py"}
