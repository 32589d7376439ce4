#!/usr/bin/env python3
"""Deletes Jobs of Kubernetes with their pods."""

from __future__ import annotations

import subprocess
import sys

if __name__ == "__main__":
    # Snakemake ends this script after two seconds, in which a distant API server may not have answered.
    command = ["kubectl", "delete", "--ignore-not-found", "--wait=false", *(f"job/{name}" for name in sys.argv[1:])]
    subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
