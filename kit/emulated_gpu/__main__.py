"""Command line: run a command in an environment with an emulated GPU."""

from __future__ import annotations

import subprocess
import sys

from anole.errors import MachineError
from kit.emulated_gpu.machine import build_environment


def main() -> None:
    """Run the command in the arguments and exit with its status, or with 127 if it cannot be started."""
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: python -m kit.emulated_gpu COMMAND [ARGUMENTS]")
    try:
        variables = build_environment()
    except MachineError as error:
        sys.exit(f"anole: {error}")
    try:
        sys.exit(subprocess.run(command, env=variables).returncode)
    except OSError as error:
        print(f"anole: {command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
