"""A fake kubectl that runs the command of a Job on this machine, ignoring the rest of the manifest.

KUBECTL_STATE names the folder of its state: for each Job the manifest, the output and finally the exit code. The first
Job of the rule in KUBECTL_LOSES fails without running, as if its node were lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_RUN = '"$@" >"$STATE.out" 2>&1; echo $? >"$STATE.part"; mv "$STATE.part" "$STATE.code"'


def create(state: Path) -> None:
    job = json.load(sys.stdin)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    begin = job["metadata"]["generateName"]
    is_lost = begin == f"anole-{os.environ.get('KUBECTL_LOSES')}-" and not list(state.glob(f"{begin}*.json"))
    name = f"{begin}{len(list(state.glob('*.json'))):05}"
    (state / f"{name}.json").write_text(json.dumps(job))
    given = {each["name"]: each["value"] for each in container.get("env", [])}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | given
    command = ["false"] if is_lost else container["command"]
    subprocess.Popen(
        ["/bin/sh", "-c", _RUN, "sh", *command], cwd=container["workingDir"], start_new_session=True,
        env={**environment, "STATE": str(state / name)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    print(f"job.batch/{name}")


def get(state: Path, name: str) -> None:
    if not (state / f"{name}.json").exists():
        return
    code = state / f"{name}.code"
    condition = "Complete" if code.exists() and code.read_text() == "0\n" else "Failed"
    conditions = [{"type": condition, "status": "True"}] if code.exists() else []
    print(json.dumps({"status": {"conditions": conditions}}))


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    names = [argument.removeprefix("job/") for argument in arguments if argument.startswith("job/")]
    folder = Path(os.environ["KUBECTL_STATE"])
    if verb == "create":
        assert arguments == ["--filename", "-", "--output", "name"], arguments
        create(folder)
    elif verb == "get":
        assert arguments == [f"job/{names[0]}", "--ignore-not-found", "--output", "json"], arguments
        get(folder, names[0])
    else:
        assert [verb, *arguments[:2]] == ["delete", "--ignore-not-found", "--wait=false"], arguments
        (folder / "deleted").write_text("\n".join(names))
