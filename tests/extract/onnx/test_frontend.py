"""TVM's ONNX importer with Anole's converters."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from anole.extract.onnx.frontend import import_graph, operators
from anole.extract.onnx.operators import CONVERTERS
from anole.extract.onnx.operators.call import Call


def test_a_custom_converter_receives_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Call] = []

    def convert(call: Call) -> list[relax.Expr]:
        calls.append(call)
        bias = call.constant(2)
        assert bias is not None
        total = call.emit(relax.op.add(call.input(0), relax.const(bias)))
        return [total, call.input(0)]

    monkeypatch.setitem(CONVERTERS, "Novel", convert)
    bias = numpy_helper.from_array(np.float32([1, 2, 3]), "bias")
    nodes = [
        helper.make_node("Novel", ["x", "", "bias"], ["y", "z"], "first", mode="up", sizes=[1, 2], table=bias),
        helper.make_node("Novel", ["y", "", "bias"], ["w"], "second"),
        helper.make_node("Relu", ["w"], ["out"], "last"),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("out", "z")]
    proto = helper.make_model(helper.make_graph(nodes, "net", [given], results, [bias]))

    module = import_graph(proto, {"x": (2, 3)}, {"x": "float32"})

    assert "Novel" in operators()
    first, second = calls
    assert (first.operator, first.name, first.n_outputs, second.n_outputs) == ("Novel", "first", 2, 1)
    assert (first.attributes["mode"], first.attributes["sizes"]) == ("up", (1, 2))
    assert first.attributes["table"].tolist() == [1, 2, 3]
    assert first.shape(0) == (2, 3) and not first.has(1) and first.constant(0) is None and not first.has(3)
    x = np.float32([[0, 1, 2], [-9, 1, 2]])
    built = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    out, z = built["main"](tvm.runtime.tensor(x))
    assert out.numpy().tolist() == [[2, 5, 8], [0, 5, 8]]
    assert (z.numpy() == x).all()


def test_a_failing_converter_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def convert(call: Call) -> relax.Expr:
        raise ValueError("mode up is not supported")

    monkeypatch.setitem(CONVERTERS, "Novel", convert)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Novel", ["x"], ["y"])], "net", values[:1], values[1:])
    with pytest.raises(ValueError, match="mode up is not supported"):
        import_graph(helper.make_model(graph), {"x": (2,)}, {"x": "float32"})
    assert capsys.readouterr().out == ""
    assert "Novel" not in onnx_frontend._get_convert_map()
