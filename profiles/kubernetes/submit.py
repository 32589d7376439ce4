#!/usr/bin/env python3
"""Submit a Snakemake job to Kubernetes as a Job made from job.yaml, and print the name of the Job."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_MEASURES = "anole-measures"
"""The label of all pods: ``yes`` if they measure on the CPU, otherwise ``no``."""

_EXAMPLE = "registry.example.org/"
_PROPERTIES = "# properties = "


def properties_of(script: str) -> dict[str, Any]:
    """Return the properties of a job, which Snakemake writes into its script."""
    (line,) = [line for line in script.splitlines() if line.startswith(_PROPERTIES)]
    properties: dict[str, Any] = json.loads(line.removeprefix(_PROPERTIES))
    return properties


def job_of(template: Mapping[str, Any], properties: Mapping[str, Any], script: Path, folder: str, packages: str) -> Any:
    """Return the manifest of a Job.

    Args:
        template: the content of job.yaml; its first container runs the job.
        properties: the job's properties, see `properties_of`.
        script: the job's script, written by Snakemake.
        folder: the working directory of the job.
        packages: ``PYTHONPATH`` of the caller, which gives the job the same modules.

    Raises:
        ValueError: the image is still the example, or `node_selector` is not of the form ``label=value,label=value``.
    """
    requested = properties["resources"]
    is_measurement = bool(requested.get("device"))
    labels = {"app.kubernetes.io/name": "anole", _MEASURES: "yes" if is_measurement else "no"}
    job: Any = copy.deepcopy(template)
    job["metadata"] = {**job.get("metadata", {}), "generateName": _name_prefix(properties), "labels": labels}
    # Snakemake itself retries jobs, with more memory.
    job["spec"]["backoffLimit"] = 0
    job["spec"]["template"]["metadata"] = {"labels": labels}
    pod = job["spec"]["template"]["spec"]
    pod["restartPolicy"] = "Never"
    if "runtime" in requested:
        pod["activeDeadlineSeconds"] = 60 * int(requested["runtime"])
    if "node_selector" in requested:
        pod["nodeSelector"] = {**pod.get("nodeSelector", {}), **_labels(requested["node_selector"])}
    if is_measurement:
        _add_anti_affinity(pod)
    container = pod["containers"][0]
    if container["image"].startswith(_EXAMPLE):
        raise ValueError(f"job.yaml: the image is still {container['image']}; replace it with your own")
    container.update(command=["/bin/sh", str(script)], workingDir=folder)
    if packages:
        container.setdefault("env", []).append({"name": "PYTHONPATH", "value": packages})
    for kind, amounts in _amounts(properties["threads"], requested, is_measurement).items():
        container.setdefault("resources", {}).setdefault(kind, {}).update(amounts)
    return job


def _name_prefix(properties: Mapping[str, Any]) -> str:
    name = re.sub("[^a-z0-9]+", "-", str(properties.get("rule") or properties["groupid"]).lower())
    return f"anole-{name[:40].strip('-')}-"


def _labels(selector: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in selector.split(",")]
    if not all(label and separator and value for label, separator, value in pairs):
        raise ValueError(f"node_selector: found {selector!r}; label=value,label=value is expected")
    return {label.strip(): value.strip() for label, _, value in pairs}


def _add_anti_affinity(pod: dict[str, Any]) -> None:
    """Keep pods of all other jobs, in any namespace, off the node, and this pod off theirs."""
    others = {
        "labelSelector": {"matchExpressions": [{"key": _MEASURES, "operator": "Exists"}]},
        "namespaceSelector": {},
        "topologyKey": "kubernetes.io/hostname",
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    pod.setdefault("affinity", {}).setdefault("podAntiAffinity", {}).setdefault(required, []).append(others)


def _amounts(threads: int, requested: Mapping[str, Any], is_measurement: bool) -> dict[str, dict[str, str]]:
    # Kubernetes reserves part of a core on each node: a job that requests all cores would not fit anywhere.
    cores = max(1, threads - 1) if is_measurement else threads
    # No CPU limit, because it would throttle all threads within each period of 100 ms.
    requests, limits = {"cpu": str(cores)}, {}
    if "mem_mb" in requested:
        requests["memory"] = limits["memory"] = f"{requested['mem_mb']}M"
    if requested.get("gpu"):
        limits["nvidia.com/gpu"] = str(requested["gpu"])
    return {"requests": requests, "limits": limits}


def _submit(script: Path) -> None:
    template = yaml.safe_load(Path(__file__).with_name("job.yaml").read_text())
    try:
        properties, packages = properties_of(script.read_text()), os.environ.get("PYTHONPATH", "")
        job = job_of(template, properties, script, os.getcwd(), packages)
    except ValueError as error:
        sys.exit(f"submit.py: {error}")
    command = ["kubectl", "create", "--filename", "-", "--output", "name"]
    result = subprocess.run(command, input=json.dumps(job), stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode:
        sys.exit(result.returncode)
    print(result.stdout.strip().rpartition("/")[2])


if __name__ == "__main__":
    _submit(Path(sys.argv[1]))
