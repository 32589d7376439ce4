"""The manifest and receipts that a build's description records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from anole.compiler.recorded import manifest_of_build, recorded_receipts
from anole.documents.build import read_build

BUILDS = Path(__file__).parents[1] / "old_records/builds"


def test_every_task_is_listed_and_has_the_config_that_was_compiled() -> None:
    build = read_build(min(path.parent for path in BUILDS.glob("*/build.json")))
    manifest, receipts = manifest_of_build(build), recorded_receipts(build)
    assert [task.key for task in manifest.tasks] == [task.key for task in build.tasks]
    assert manifest.flop == build.coverage.total_flop and manifest.origin.target_description == build.target_description
    assert {key: receipt.config for key, receipt in receipts.items()} == {task.key: task.config for task in build.tasks}


def test_an_unscheduled_task_has_a_receipt_if_its_config_is_known() -> None:
    build = read_build(min(path.parent for path in BUILDS.glob("*/build.json")))
    first, *others = build.tasks
    without = replace(build, tasks=(replace(first, config=None), *others))
    assert recorded_receipts(without).keys() == {task.key for task in others}
    known = replace(build, tasks=(replace(first, config=None, unscheduled=first.config), *others))
    assert recorded_receipts(known)[first.key].config == first.config
