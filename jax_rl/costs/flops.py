"""Floating-point operations of a traced program, loops counted as often as they run.

The compiler's own cost analysis counts the body of a loop once, and what it counts differs from
backend to backend; the traced program says how often a scan runs and is the same everywhere.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

_ELEMENTWISE_NAMES = """
    add add_any sub mul div rem neg abs max min sign pow integer_pow square sqrt rsqrt cbrt exp
    exp2 expm1 log log1p logistic tanh sin cos tan asin acos atan atan2 sinh cosh asinh acosh
    atanh erf erfc erf_inv lgamma digamma floor ceil round nextafter clamp
"""
_REDUCTION_NAMES = """
    reduce_sum reduce_max reduce_min reduce_prod argmax argmin reduce cumsum cumprod
    cummax cummin cumlogsumexp
"""
_ELEMENTWISE = frozenset(_ELEMENTWISE_NAMES.split())
_REDUCTIONS = frozenset(_REDUCTION_NAMES.split())
_SCATTERS = frozenset(("scatter-add", "scatter-mul"))


@dataclasses.dataclass(frozen=True)
class Flops:
    """Floating-point operations of one call, of all devices together."""

    matmul: float  # matrix products and convolutions, a multiply and an add each
    other: float  # arithmetic on single elements, and reductions

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.matmul + other.matmul, self.other + other.other)

    def __mul__(self, times: float) -> "Flops":
        return Flops(self.matmul * times, self.other * times)

    @property
    def total(self) -> float:
        """Both kinds."""
        return self.matmul + self.other


_NONE = Flops(0.0, 0.0)


def count_flops(
    jaxpr: ClosedJaxpr | Jaxpr, *, loop_trips: float = 1.0, counted: int | None = None
) -> Flops:
    """Operations that one call of a traced program makes.

    A matrix product of m x k and k x n is 2 m n k. What is recomputed under `jax.checkpoint` is
    counted as often as it runs, of a condition the dearest branch, and the body of a `shard_map`
    for every device that it runs on. Integer arithmetic, comparisons and data movement are none.

    Args:
      jaxpr: the program, for example `jitted.trace(*args).jaxpr`.
      loop_trips: how often the body of a while loop runs; a scan says so itself.
      counted: length of scans that are taken to run `loop_trips` times instead, the first ones on
        the way in.
    """
    body = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    total = _NONE
    for equation in body.eqns:
        total = total + _count_equation(equation, loop_trips, counted)
    return total


def _count_equation(equation: Any, loop_trips: float, counted: int | None) -> Flops:
    name = equation.primitive.name
    if name == "dot_general":
        return Flops(_dot(equation), 0.0)
    if name == "conv_general_dilated":
        return Flops(_convolution(equation), 0.0)
    if name in _ELEMENTWISE:
        return Flops(0.0, _count_elements(equation.outvars[0]))
    if name in _REDUCTIONS:
        return Flops(0.0, _count_elements(equation.invars[0]))
    if name in _SCATTERS:
        return Flops(0.0, _count_elements(equation.invars[2]))
    is_counted = name == "scan" and equation.params["length"] == counted
    deeper = None if is_counted else counted
    inside = [
        count_flops(part, loop_trips=loop_trips, counted=deeper) for part in _list_bodies(equation)
    ]
    if name == "cond":
        return max(inside, key=lambda flops: flops.total)
    runs = loop_trips if is_counted else _count_runs(equation, loop_trips)
    return sum(inside, _NONE) * runs


def _count_runs(equation: Any, loop_trips: float) -> float:
    """How often the bodies of an equation run in one of its calls."""
    name, params = equation.primitive.name, equation.params
    if name == "scan":
        return float(params["length"])
    if name == "while":
        return loop_trips
    if name == "shard_map":
        mesh = params["mesh"]
        # The name of the parameter differs between versions of JAX.
        named = [value for key, value in params.items() if key.endswith("manual_axes")]
        return float(math.prod(mesh.shape[axis] for axis in next(iter(named), mesh.axis_names)))
    if name == "pallas_call":
        return float(math.prod(params["grid_mapping"].grid))
    return 1.0


def _list_bodies(equation: Any) -> Iterator[ClosedJaxpr | Jaxpr]:
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, ClosedJaxpr | Jaxpr):
                yield part


def _dot(equation: Any) -> float:
    (contracted, _), _ = equation.params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    depth = math.prod(shape[axis] for axis in contracted)
    return 2.0 * depth * math.prod(equation.outvars[0].aval.shape)


def _convolution(equation: Any) -> float:
    kernel = equation.invars[1].aval.shape
    features = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
    return 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(kernel) / features


def _count_elements(variable: Any) -> float:
    """Elements of an array of floating-point numbers, none of another array."""
    aval = variable.aval
    return float(math.prod(aval.shape)) if jnp.issubdtype(aval.dtype, jnp.inexact) else 0.0
