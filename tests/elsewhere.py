"""Run the quick tests as on other machines: other users, locales, numbers of cores, CPUs and Pythons.

    python -m tests.elsewhere [CELL ...] [--list] [--folder FOLDER]

A cell is one such machine. All cells run in a copy of this checkout, in a folder with a space and a non-ASCII letter in
its name, with environments that `make env` builds there. The cells alternate between the available Pythons.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from packaging.specifiers import SpecifierSet

CHECKOUT = Path(__file__).parents[1]
LOGS = CHECKOUT / "logs/elsewhere"

GATE = ("tests",)
"""The tests of `make test`, with the same markers deselected."""

NATIVE = tuple(
    f"tests/{part}" for part in "host compile evaluate export measure project report targets tune test_cli.py".split()
)
"""The tests that may depend on the CPU, because they name it, generate code for it or measure times."""

LOCALIZED = tuple(
    f"tests/{part}"
    for part in "commands compile config documents export merge project report store workflow test_cli.py".split()
)
"""The tests that may depend on the locale, because they read or write text or start other programs."""

UNPRIVILEGED_ID = 64_321
"""The id of a user and a group without an account."""


@dataclass(frozen=True)
class Cell:
    """One other machine; in its variables, ``{folder}`` is replaced by the folder of the run.

    A stranger is a user without privileges; `core` restricts the tests to one core.
    """

    name: str
    meaning: str
    variables: Mapping[str, str]
    tests: Sequence[str] = GATE
    stranger: bool = False
    core: bool = False


def claim(processor: str) -> dict[str, str]:
    return {"ANOLE_CPUINFO": f"{{folder}}/anole/tests/host/processors/{processor}.txt"}


CELLS = (
    Cell(
        "stranger",
        "a user who is not root and has no account, umask 077, LANG=C, a time zone of 5:45 hours",
        {"LANG": "C", "TZ": "Asia/Kathmandu", "USER": "stranger"},  # Snakemake asks for a name
        stranger=True,
    ),
    Cell("one-core", "one core for two test processes", {}, core=True),
    Cell("xeon", "64 claimed cores of an Intel(R) Xeon(R) with AMX", {**claim("xeon_amx"), "ANOLE_CORES": "64"}),
    Cell("vm", "a virtual machine without a model name: code for x86-64-v3", claim("nameless_vm")),
    Cell("amd", "an AMD EPYC", claim("epyc_zen4"), NATIVE),
    Cell("avx2", "an Intel(R) Xeon(R) with AVX2 only: code for haswell", claim("haswell"), NATIVE),
    Cell(
        "german",
        "numbers with commas, a time zone of -3:30 hours",
        {"LC_ALL": "de_DE.UTF-8", "LOCPATH": "{folder}/locales", "TZ": "America/St_Johns"},
        LOCALIZED,
    ),
)


@dataclass(frozen=True)
class Outcome:
    """The test counts of a cell, and pytest's exit status."""

    status: int
    seconds: float
    counts: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        counted = ", ".join(f"{number} {what}" for what, number in self.counts.items())
        return f"{'passed' if self.status == 0 else 'FAILED'}: {counted or 'no counts'} in {self.seconds:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.elsewhere", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cells", nargs="*", metavar="CELL", help="the cells to run (default: all)")
    parser.add_argument("--list", action="store_true", help="list the cells and run nothing")
    parser.add_argument("--folder", type=Path, help="keep copies and environments there, for later runs")
    arguments = parser.parse_args()
    if unknown := set(arguments.cells) - {cell.name for cell in CELLS}:
        parser.error(f"found {', '.join(sorted(unknown))}; the cells are {', '.join(cell.name for cell in CELLS)}")
    if arguments.list:
        print(*(f"{cell.name:10} {cell.meaning}" for cell in CELLS), sep="\n")
        return 0
    os.umask(0o022)
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    with provide_folder(arguments.folder) as folder:
        return run_all(folder, [cell for cell in CELLS if not arguments.cells or cell.name in arguments.cells])


@contextmanager
def provide_folder(kept: Path | None) -> Iterator[Path]:
    """Provide the folder of the run, whose name breaks commands that do not quote it."""
    with tempfile.TemporaryDirectory(prefix="anole-", ignore_cleanup_errors=True) as temporary:
        os.chmod(temporary, 0o755)
        folder = (kept or Path(temporary)).absolute() / "an öle"
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def run_all(folder: Path, cells: Sequence[Cell]) -> int:
    """Run cells one after the other; return 1 if a test of any failed, else 0."""
    pythons, failed = find_pythons(), 0
    for version, python in pythons.items():
        if python is None:
            print(f"Python {version}: skipped, found none", flush=True)
    found = {version: python for version, python in pythons.items() if python is not None}
    copy_checkout(folder / "anole")
    for cell in cells:
        usable = [version for version, python in found.items() if not cell.stranger or is_reachable_by_all(python)]
        version = usable[CELLS.index(cell) % len(usable)] if usable else "?"
        if (reason := why_unavailable(cell, folder, usable)) is not None:
            result = f"skipped, {reason}"
        else:
            outcome = run(cell, folder, environment(folder, version, found[version]))
            result, failed = str(outcome), failed or outcome.status
        print(f"{cell.name:10} Python {version}  {result}", flush=True)
    print(f"The logs are in {LOGS.relative_to(CHECKOUT)}/.")
    return 1 if failed else 0


def find_pythons() -> dict[str, Path | None]:
    """Return the first interpreter of each version that `pyproject.toml` allows, or None if there is none."""
    project = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    allowed = SpecifierSet(project.partition('requires-python = "')[2].partition('"')[0])
    return {version: find_python(version) for minor in range(30) if (version := f"3.{minor}") in allowed}


def find_python(version: str) -> Path | None:
    """Return an interpreter of a version that can create an environment, preferably one that every user can start.

    Search PATH, and the interpreters installed by pyenv and uv.
    """
    say = "import ensurepip, sys, venv; print(sys.base_prefix)"
    home, name, found = Path.home(), f"python{version}", []
    candidates = [
        *(path for folder in os.get_exec_path() if (path := Path(folder, name)).exists()),
        *home.glob(f".pyenv/versions/{version}.*/bin/{name}"),
        *home.glob(f".local/share/uv/python/cpython-{version}.*/bin/{name}"),
    ]
    for candidate in candidates:
        done = subprocess.run([candidate, "-c", say], capture_output=True, text=True)
        if done.returncode == 0:
            found.append(Path(done.stdout.strip(), "bin", name))
    return next(filter(is_reachable_by_all, found), next(iter(found), None))


def is_reachable_by_all(path: Path) -> bool:
    """Whether every user can reach a file."""
    return all(folder.stat().st_mode & 0o001 for folder in path.parents)


def copy_checkout(folder: Path) -> None:
    """Copy the working tree: tracked files, and new files that git does not ignore."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    for entry in folder.glob("*"):
        if not entry.name.startswith(".venv"):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for name in filter(None, listed.split("\0")):
        if (CHECKOUT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, folder / name)


def environment(folder: Path, version: str, python: Path) -> Path:
    """Build an environment like a new user; return its folder."""
    venv = folder / "anole" / f".venv-{version}"
    with (LOGS / f"env-{version}.log").open("w") as log:
        command = ["make", "env", f"PYTHON={python}", f"VENV={venv.name}"]
        subprocess.run(command, cwd=venv.parent, stdout=log, stderr=subprocess.STDOUT, check=True)
    return venv


def why_unavailable(cell: Cell, folder: Path, pythons: Sequence[str]) -> str | None:
    """Return why a cell cannot be run on this machine."""
    if cell.stranger and os.geteuid() != 0:
        return "only root can become another user"
    if not pythons:
        return "found no Python that every user can start"
    return why_no_german_locale(folder / "locales") if "LOCPATH" in cell.variables else None


def why_no_german_locale(locales: Path) -> str | None:
    """Create the German locale; return why it cannot be created."""
    if shutil.which("localedef") is None:
        return "there is no localedef"
    locales.mkdir(exist_ok=True)
    making = ["localedef", "-i", "de_DE", "-f", "UTF-8", f"{locales}/de_DE.UTF-8"]
    done = subprocess.run(making, capture_output=True, text=True)
    return None if done.returncode == 0 else f"localedef fails: {done.stderr.strip()}"


def run(cell: Cell, folder: Path, venv: Path) -> Outcome:
    """Run the tests of a cell, without this process's environment variables about locale or Python."""
    own, began_s = folder / cell.name, time.monotonic()
    shutil.rmtree(own, ignore_errors=True)
    for name in ("home", "tmp"):
        (own / name).mkdir(parents=True, exist_ok=True)
    if cell.stranger:
        for path in (own, own / "home", own / "tmp"):
            os.chown(path, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
    with (LOGS / f"{cell.name}.log").open("w") as log:
        done = subprocess.run(
            command(cell, own / "results.xml", venv),
            cwd=venv.parent,
            env=variables(cell, own, venv),
            stdout=log,
            stderr=subprocess.STDOUT,
            **(
                {"user": UNPRIVILEGED_ID, "group": UNPRIVILEGED_ID, "extra_groups": [], "umask": 0o077}
                if cell.stranger
                else {}
            ),
        )
    return Outcome(done.returncode, time.monotonic() - began_s, counts(own / "results.xml"))


def command(cell: Cell, results: Path, venv: Path) -> list[str]:
    core = str(min(os.sched_getaffinity(0)))
    return [
        *(["taskset", "--cpu-list", core] if cell.core else []),
        *(f"{venv}/bin/python", "-m", "pytest", "--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"),
        *("--verbose", "-p", "no:cacheprovider", "--junitxml", str(results), *cell.tests),
    ]


def variables(cell: Cell, own: Path, venv: Path) -> dict[str, str]:
    about = ("LC_", "LANG", "TZ", "PYTHON", "VIRTUAL_ENV", "ANOLE_", "USER", "LOGNAME", "MAKE", "MFLAGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(about)}
    path = [f"{venv}/bin", *(entry for entry in os.get_exec_path() if entry != f"{sys.prefix}/bin")]
    theirs = {name: value.format(folder=own.parent) for name, value in cell.variables.items()}
    return {**kept, "PATH": ":".join(path), "HOME": f"{own}/home", "TMPDIR": f"{own}/tmp", **theirs}


def counts(results: Path) -> dict[str, int]:
    """Return the numbers of passed, failed and skipped tests; empty if pytest wrote no results."""
    if not results.exists():
        return {}
    suite = ElementTree.parse(results).getroot()[0]
    ran, failed, broken, skipped = (int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped"))
    return {"passed": ran - failed - broken - skipped, "failed": failed + broken, "skipped": skipped}


if __name__ == "__main__":
    sys.exit(main())
