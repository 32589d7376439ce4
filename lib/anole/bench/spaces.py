"""Spaces from plain values: knobs by name, and restrictions as functions or as expressions."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.errors import StoreError, shown
from anole.space import Constraint, Space, option_knob
from anole.space.space import Columns

Restriction = str | Callable[[Mapping[str, Any]], bool]
"""A Python expression of knobs, such as ``x * y <= 1024``, or a function of a config."""

_AGENTS = {"block_size": "threads", "tile_size": "tiles"}
"""The DCOC agents by prefix of their knobs; a third agent has the remaining knobs."""

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: np.float_power},
    **{ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod},
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le},
    **{ast.Gt: operator.gt, ast.GtE: operator.ge, ast.And: np.logical_and, ast.Or: np.logical_or},
    **{ast.Not: np.logical_not, ast.USub: operator.neg, ast.In: np.isin},
    ast.NotIn: partial(np.isin, invert=True),
}


def make_space(values: Mapping[str, Sequence[Any]], restrictions: Sequence[Restriction] = ()) -> Space:
    """Return the space of all combinations of values that satisfy every restriction.

    Raises:
        StoreError: an expression is invalid, or uses more than knobs, literals, arithmetic and comparisons.
    """
    knobs = [option_knob(name, each, agent=_agent(name)) for name, each in values.items()]
    space = Space(knobs, [_constraint(each) for each in restrictions])
    space.valid(space.vectors([0]))  # raises an error here if an expression is invalid
    return space


def restrict_to(space: Space, reason: str, mask: NDArray[np.bool_]) -> Space:
    """Return the space with only the configs in a mask of all indices, shape (size,)."""

    def among(columns: Columns) -> NDArray[np.bool_]:
        positions = [
            order[np.searchsorted(knob.table, columns[knob.name], sorter=order)]
            for knob, order in zip(space.knobs, orders, strict=True)
        ]
        return mask[space.indices(np.stack(positions, axis=1))]

    orders = [np.argsort(knob.table, kind="stable") for knob in space.knobs]
    return Space(space.knobs, [*space.constraints, Constraint(reason, among)])


def _agent(knob: str) -> str:
    return next((agent for beginning, agent in _AGENTS.items() if knob.startswith(beginning)), "memory")


def _constraint(restriction: Restriction) -> Constraint:
    if isinstance(restriction, str):
        return Constraint(f"it violates `{restriction}`", partial(_holds, _parse(restriction), restriction))
    return Constraint(f"it violates {getattr(restriction, '__name__', restriction)}", partial(_holds_each, restriction))


def _parse(expression: str) -> ast.expr:
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise StoreError(f"the restriction {shown(expression)} is not an expression: {error}") from error


def _holds(tree: ast.expr, expression: str, columns: Columns) -> NDArray[np.bool_]:
    n = len(next(iter(columns.values())))
    with np.errstate(all="ignore"):
        try:
            return np.broadcast_to(_value(tree, columns).astype(bool), n).copy()
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"the restriction {shown(expression)} cannot be evaluated: {error}") from error


def _holds_each(function: Callable[[Mapping[str, Any]], bool], columns: Columns) -> NDArray[np.bool_]:
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    return np.array([bool(function(dict(zip(columns, row, strict=True)))) for row in rows], dtype=bool)


def _value(node: ast.expr, columns: Columns) -> NDArray[Any]:
    """Return the value of an expression for n configs; only whitelisted nodes are evaluated.

    Numbers are arrays even if they are constant, so a large power overflows instead of taking hours.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return np.asarray(value)
        case ast.Name(id=name) if name in columns:
            return np.asarray(columns[name])
        case ast.List(elts=each) | ast.Tuple(elts=each):
            return np.array([_value(one, columns) for one in each])
        case ast.BoolOp(op=op, values=each):
            return np.asarray(reduce(_OPERATORS[type(op)], [_value(one, columns) for one in each]))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return np.asarray(_OPERATORS[type(op)](_value(left, columns), _value(right, columns)))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return np.asarray(_OPERATORS[type(op)](_value(operand, columns)))
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _OPERATORS for op in ops):
            compared = itertools.pairwise([_value(one, columns) for one in (left, *others)])
            pairs = [_OPERATORS[type(op)](*pair) for op, pair in zip(ops, compared, strict=True)]
            return np.asarray(reduce(np.logical_and, pairs))
    allowed = f"use {', '.join(columns)}, literals, arithmetic and comparisons"
    raise ValueError(f"`{ast.unparse(node)}` is not allowed; {allowed}")
