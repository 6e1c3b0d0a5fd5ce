"""Runs chat templates, which come with a checkpoint and are not trusted, within bounds."""

import datetime
import functools
import json
import math
import time
import types
from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2 import nodes, sandbox
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.visitor import NodeTransformer

from jax_rl.errors import UserError

SECONDS = 10.0
"""Processor time that one rendering may take."""
LENGTH = 10_000_000
"""Largest number in a template, longest value that an operator makes, longest output."""


def render_template(source: str, variables: Mapping[str, Any], *, place: str) -> str:
    """Text that a chat template makes of its variables, as transformers' environment would.

    The sandbox gives no access to Python's internals and no file is loaded. Processor time is
    looked at in every turn of a loop, call and operator, against `SECONDS`; numbers, what
    operators make, and the output are held below `LENGTH`, `range` below 100,000. A format or a
    filter that blows a value up by itself is bounded by memory alone.

    Args:
      source: a Jinja template.
      variables: plain data (what JSON can hold), by name.
      place: the file that the template came from, for messages.

    Raises:
      UserError: the template cannot be parsed, raises, or leaves its bounds; with place and line.
    """
    try:
        environment = _Sandbox()
        # Compiled once; a fresh environment per rendering holds that rendering's deadline.
        template = jinja2.Template.from_code(
            environment, _compile(source), environment.make_globals(None)
        )
        pieces, length = [], 0
        for piece in template.generate(variables):
            pieces.append(piece)
            length += len(piece)
            if length > LENGTH:
                raise sandbox.SecurityError(f"its output is longer than {LENGTH} characters")
    # A template is a program: whatever it does wrong is the template's, of any type.
    except Exception as error:
        raise UserError(
            f"{place}: the chat template fails{_describe_line(error)}:"
            f" {_describe_error(error)}; mend it, or name another file in text.chat_template"
        ) from error
    return "".join(pieces)


@functools.lru_cache(maxsize=16)
def _compile(source: str) -> types.CodeType:
    environment = _Sandbox()
    return environment.compile(_Bounds(environment).visit(environment.parse(source)))


class _Sandbox(sandbox.ImmutableSandboxedEnvironment):
    """The environment that chat templates are written for, with a deadline."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        self.filters["tojson"] = _dump_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _format_now
        del self.globals["lipsum"]  # random text of any length
        self._deadline = time.thread_time() + SECONDS

    def watch(self) -> None:
        """Stops a rendering that has used up its time."""
        if time.thread_time() > self._deadline:
            raise sandbox.SecurityError(f"it runs for more than {SECONDS:g} seconds")

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls, which are the only other way than a loop to go on for ever."""
        self.watch()
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Operators that can make more than they are given."""
        self.watch()
        if _estimate(operator, left, right) > LENGTH:
            raise sandbox.SecurityError(f"{operator!r} makes a value above {LENGTH}")
        return super().call_binop(context, operator, left, right)


def _estimate(operator: str, left: Any, right: Any) -> float:
    """Size of the value, before it is made: length of a sequence, or magnitude of a number."""
    if operator == "**":
        try:
            return abs(float(left)) ** right if isinstance(left, int | float) else 0
        except OverflowError:
            return math.inf
    a, b = (len(x) if isinstance(x, str | list | tuple) else x for x in (left, right))
    if not (isinstance(a, int | float) and isinstance(b, int | float)):
        return 0
    return abs(a) + abs(b) if operator == "+" else abs(a * b)


class _Bounds(NodeTransformer):
    """Rewrites a parsed template so that `_Sandbox` sees all that could run away."""

    def __init__(self, environment: _Sandbox) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        watch = nodes.Call(nodes.EnvironmentAttribute("watch"), [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(watch))
        return self._finish(node, node.lineno)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        texts = [nodes.Filter(part, "string", [], [], None, None) for part in node.nodes]
        total: nodes.Expr = texts[0]
        for text in texts[1:]:
            total = nodes.Add(total, text)
        return self._finish(total, node.lineno)

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        if isinstance(node.value, int) and abs(node.value) > LENGTH:
            raise jinja2.TemplateSyntaxError(f"a number above {LENGTH}", node.lineno)
        return node

    def _finish(self, node: nodes.Node, line: int) -> nodes.Node:
        return node.set_lineno(line).set_environment(self._environment)


class _Generation(Extension):
    """The tag that marks the model's own turns for a loss mask; its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 (jinja's own name and type)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def _dump_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes <, > and & for HTML, which no model was trained on.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _format_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _describe_line(error: Exception) -> str:
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f" in line {error.lineno}"
    lines, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f" in line {lines[-1]}" if lines else ""


def _describe_error(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    if isinstance(error, RecursionError):
        return "its macros call each other without end"
    return str(error) if isinstance(error, jinja2.TemplateError) else f"{error!r}"
