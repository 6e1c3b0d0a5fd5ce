import ast
import operator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_rl.rewards.arithmetic import read_tokens, work_out


def value(text):
    tokens = read_tokens(text)
    return None if tokens is None else work_out(tokens)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("2+3*4", 14),
        ("(2+3)*4", 20),
        ("10-4-3", 3),
        ("16/4/2", 2),
        ("4/(1-3/5)", 10),
        ("-3+5", 2),
        ("2*-3", -6),
        ("2×3÷4−1", Fraction(1, 2)),
        (" ( 1 + 2 ) ", 3),
    ],
)
def test_values_by_hand(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "1+", "*2", "(1", "1)", "()", "2(3)", "1 2", "1.5", "2**3", "1//2", "x", "1/0", "1/(2-2)",
     "__import__('os')", "9**9**9", "+1", "1_000", "0x10", "1e5", "٣", "1+1=2", "1\n2",
     "(" * 400, "(" * 100 + "1" + ")" * 100, "-" * 400 + "1", "1" * 16, "1+" * 300 + "1"],
)  # fmt: skip
def test_anything_else_has_no_value(text):
    assert value(text) is None


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def by_python(text):
    """Python's own parser, with fractions."""

    def walk(node):
        if isinstance(node, ast.Constant):
            return Fraction(node.value)
        if isinstance(node, ast.UnaryOp):
            return -walk(node.operand)
        return _OPERATORS[type(node.op)](walk(node.left), walk(node.right))

    return walk(ast.parse(text, mode="eval").body)


EXPRESSIONS = st.recursive(
    st.integers(0, 999).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map("".join),
        inner.map("({})".format),
        inner.map("-({})".format),
    ),
    max_leaves=12,
)


@given(EXPRESSIONS)
def test_equals_pythons_own_parser(text):
    try:
        expected = by_python(text)
    except ZeroDivisionError:
        expected = None
    assert value(text) == expected
