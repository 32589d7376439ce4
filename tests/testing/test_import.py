import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import anole.testing

MODULES = [path.stem for path in Path(anole.testing.__file__).parent.glob("[!_]*.py")]
CONTRACTS = [name for name in MODULES if name.endswith("_contract")]


def output_of(code):
    done = subprocess.run([sys.executable, "-c", f"import sys; {code}"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.guard
def test_only_the_contract_suites_need_pytest():
    code = "".join(f"import anole.testing.{name}; " for name in MODULES if name not in CONTRACTS)
    assert output_of(f"{code} print([name for name in ('pytest', 'hypothesis') if name in sys.modules])") == "[]"


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_suite_is_imported_by_its_name(name):
    role = name.removesuffix("_contract")
    assert output_of(f"from anole.testing.{name} import {role.capitalize()}Contract; print('yes')") == "yes"


def test_every_role_has_a_contract():
    assert {*CONTRACTS} == {f"{role}_contract" for role in ("explorer", "sampler", "surrogate", "evaluator", "target")}
    assert all(find_spec(f"anole.testing.{name}") for name in CONTRACTS)
