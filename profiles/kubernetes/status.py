#!/usr/bin/env python3
"""Print the status of a Kubernetes Job: running, success or failed."""

from __future__ import annotations

import json
import subprocess
import sys


def status_of(answer: str) -> str:
    """Return the status of a Job from kubectl's JSON output; a Job that no longer exists has failed."""
    if not answer.strip():
        return "failed"
    conditions = json.loads(answer).get("status", {}).get("conditions", [])
    true_types = {condition["type"] for condition in conditions if condition["status"] == "True"}
    if "Complete" in true_types:
        return "success"
    return "failed" if "Failed" in true_types else "running"


def _print_status(name: str) -> None:
    command = ["kubectl", "get", f"job/{name}", "--ignore-not-found", "--output", "json"]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    # If the API server does not answer, the status is unknown: assume that the job is running.
    status = status_of(result.stdout) if result.returncode == 0 else "running"
    if status == "failed":
        print(f"Kubernetes: {name} failed; see kubectl describe pods --selector job-name={name}", file=sys.stderr)
    print(status)


if __name__ == "__main__":
    _print_status(sys.argv[1])
