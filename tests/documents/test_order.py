from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.codec import FLAT, LATER, Range, decode, encode
from anole.commands.shared import Json
from anole.config.entries import AcceleratorOrder, ModelSpec
from anole.config.reading import parse_spec
from anole.documents.build import Build
from anole.documents.described import DescribedTarget
from anole.documents.document import as_argument, read_document, write_document
from anole.documents.evaluation import Evaluation
from anole.documents.manifest import Manifest, Order
from anole.documents.receipt import Refined, SharedReceipts, TuningReceipt
from anole.merge.stage import Stamp
from anole.project.rule_inputs import RuleInputs

DOCUMENTS = (
    *(Manifest, Build, Evaluation, TuningReceipt, SharedReceipts, Refined, DescribedTarget, Stamp),
    *(Order, AcceleratorOrder),
)
NAMES = st.text("abxyz", min_size=1, max_size=3)
NUMBERS = st.integers(-9, 9) | st.floats(-9, 9) | st.booleans()
PLAIN = st.recursive(
    NUMBERS | NAMES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


def to_ordered(value: Any) -> Any:
    """Return a value whose equality depends on the order of its mappings."""
    if isinstance(value, Mapping):
        return "object", [(name, to_ordered(each)) for name, each in value.items()]
    return [to_ordered(each) for each in value] if isinstance(value, (list, tuple)) else value


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a field's type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if isinstance(arguments[1], Range):
            return st.floats(arguments[1].low, min(arguments[1].high, 1e6))
        return values(arguments[0]) if arguments[1] in (FLAT, LATER) else st.from_regex(arguments[1], fullmatch=True)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(st.none() if each is types.NoneType else values(each) for each in arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(NAMES, PLAIN if arguments[1] is Any else values(arguments[1]), max_size=4)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*map(values, arguments))
    if origin is not None:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        return st.fixed_dictionaries({each.name: values(hints[each.name]) for each in dataclasses.fields(hint)}).map(
            lambda fields: hint(**fields)
        )
    if issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    return {str: NAMES, bool: st.booleans(), int: st.integers(-99, 99), float: st.floats(-9, 9)}[hint]


@pytest.mark.parametrize("cls", DOCUMENTS)
@given(data=st.data())
def test_a_document_round_trips_including_order(
    tmp_path_factory: pytest.TempPathFactory, cls: type, data: st.DataObject
) -> None:
    written = data.draw(values(cls))
    path = tmp_path_factory.mktemp("documents") / "document.json"
    write_document(path, written)
    assert to_ordered(encode(read_document(path, cls, "compile"))) == to_ordered(encode(written))


@given(document=values(Order))
def test_an_argument_round_trips_including_order(tmp_path_factory: pytest.TempPathFactory, document: Order) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(tmp_path_factory.mktemp("project"))
        workflow = types.SimpleNamespace(dryrun=False, non_local_exec=False, remote_exec=False, cores=1)
        answers = RuleInputs(lambda: None, workflow, lambda _: None, lambda *_: None, {})  # type: ignore[arg-type, return-value]
        argument = as_argument(document)
        written = answers._argument(argument)
        read = decode(Order, Json().convert(written, None, None))
        turned = answers._argument(dict(reversed(argument.items())))
    assert to_ordered(encode(read)) == to_ordered(encode(document))
    assert written != turned, "Snakemake runs jobs again if the order of their arguments changes"


INPUTS = st.dictionaries(
    NAMES,
    st.lists(st.integers(1, 9), min_size=1, max_size=3)
    | st.fixed_dictionaries({"shape": st.lists(st.integers(1, 9), min_size=1, max_size=3), "dtype": st.just("int64")})
    | st.builds(lambda extent: [{"batch": "1..8"}, extent], st.integers(1, 9)),
    min_size=1,
    max_size=4,
)


@given(inputs=INPUTS)
def test_a_model_keeps_the_order_of_its_inputs_in_models_yaml(inputs: dict[str, Any]) -> None:
    models = {"m": {"source": "torchvision:resnet18", "inputs": inputs}}
    builds = [{"model": "m", "target": "cpu", "trials": 0}]
    model = parse_spec({"models": models, "targets": {"cpu": {"kind": "cpu"}}, "builds": builds}).models["m"]
    plain = json.loads(json.dumps(model.to_json(), sort_keys=True))
    read = ModelSpec.from_json("m", plain)
    assert read == model
    assert [list(read.inputs), list(read.ranges)] == [list(inputs), list(model.ranges)]
