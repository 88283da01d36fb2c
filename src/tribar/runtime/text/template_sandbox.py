"""A Jinja environment for templates that came with a model file: sandboxed, and bounded in time and size.

Beside what Jinja's immutable sandbox forbids (attributes that lead to Python's internals, changes of its arguments,
ranges above 100,000), every turn of a loop and every call of a macro looks at the clock, and the operations that
turn a short template into a long string (``*``, ``~``, padding, joining, replacing) are measured before they run.
What remains: a hostile template can nest lists into each other until printing them is slow. It comes from the model
file that the operator chose to load, never from a request.
"""

import json
import re
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import do_indent, do_join, do_replace, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

_MAX_BITS = 4096
_PADDING_METHODS = frozenset({"center", "expandtabs", "ljust", "rjust", "translate", "zfill"})
_FILTERS_LEFT_OUT = ("batch", "center", "pprint", "random", "round", "slice", "sum", "urlize", "wordwrap", "xmlattr")
_GLOBALS_LEFT_OUT = ("lipsum",)
_LONG_FORMAT = re.compile(r"%[^a-zA-Z%]*(?:\d{4}|\*)|\{[^{}]*(?:\d{4}|\{)")


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """``max_chars`` bounds every string that a template builds; ``allowance`` bounds the time of one rendering."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self, max_chars: int) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[])
        self.add_extension(LoopControlExtension)
        self.add_extension(_GenerationBlock)
        self._max_chars = max_chars
        self._deadline_s: ContextVar[float] = ContextVar("deadline_s", default=float("inf"))
        for name in _FILTERS_LEFT_OUT:
            del self.filters[name]
        for name in _GLOBALS_LEFT_OUT:
            del self.globals[name]
        self.filters |= {"tojson": _tojson, "indent": self._indent, "join": self._join_filter}
        self.filters["replace"] = self._replace_filter
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}

    def compile_metered(self, source: str) -> jinja2.Template:
        """Compile with the meters built in. Raises ``jinja2.TemplateSyntaxError``, ``RecursionError``."""
        tree = _Meter().visit(self.parse(source))
        return jinja2.Template.from_code(self, self.compile(tree), self.make_globals(None))

    def render_bounded(self, template: jinja2.Template, variables: dict[str, Any], time_limit_s: float) -> str:
        """The rendered text. Raises ``jinja2.TemplateError`` over a limit, and whatever the template raises."""
        token = self._deadline_s.set(time.monotonic() + time_limit_s)
        try:
            parts: list[str] = []
            n_chars = 0
            for part in template.generate(variables):
                n_chars += len(part)
                self.fits(n_chars)
                parts.append(part)
            return "".join(parts)
        finally:
            self._deadline_s.reset(token)

    def tick(self) -> None:
        """Called by the template's loops and macros."""
        if time.monotonic() > self._deadline_s.get():
            raise jinja2.TemplateRuntimeError("the template ran out of time")

    def fits(self, n_chars: int) -> None:
        """Refuse a string (or list) that would be longer than allowed."""
        if n_chars > self._max_chars:
            raise jinja2.TemplateRuntimeError(f"the template makes more than {self._max_chars} characters")

    def concatenate(self, parts: list[Any]) -> str:
        """The operator ``~``."""
        texts = [str(part) for part in parts]
        self.fits(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """An arithmetic operator, measured first."""
        if operator == "%" and isinstance(left, str):
            _refuse_long_format(left)
        elif isinstance(left, int) and isinstance(right, int):
            factor = abs(right) if operator == "**" else 1
            if operator in {"*", "**"} and left.bit_length() * factor + right.bit_length() > _MAX_BITS:
                raise jinja2.TemplateRuntimeError("the template makes an overlong number")
        elif operator == "*":
            self.fits(_size(left) * _size(right))
        elif operator == "+":
            self.fits(_size(left) + _size(right))
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """Besides Jinja's own rules: no methods that pad."""
        return attr not in _PADDING_METHODS and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: object, attribute: str) -> jinja2.Undefined:
        """What a forbidden attribute evaluates to: an error at once for Python's internals, else undefined."""
        if attribute.startswith("_"):
            raise SecurityError(f"access to attribute {attribute!r} is not allowed in a template")
        return super().unsafe_undefined(obj, attribute)

    def wrap_str_format(self, value: object) -> Callable[..., str] | None:
        """Refuse ``str.format`` with a wide field; else Jinja's own wrapper."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _refuse_long_format(str(getattr(value, "__self__", "")))
        return wrapped

    def call(self, context: Context, obj: object, /, *args: object, **kwargs: object) -> object:
        """A call; ``str.join`` and ``str.replace`` are measured first."""
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            match getattr(obj, "__name__", ""), args:
                case "join", (items,) if isinstance(items, Iterable):
                    args = (self._joinable(items, owner),)
                case "replace", (str(old), str(new), *_):
                    self.fits(len(owner) + owner.count(old) * len(new))
        return super().call(context, obj, *args, **kwargs)

    def _joinable(self, items: Iterable[object], separator: str) -> list[str]:
        """The items as strings, if joining them fits."""
        texts = [str(item) for item in items]
        self.fits(sum(map(len, texts)) + len(separator) * len(texts))
        return texts

    @jinja2.pass_eval_context
    def _join_filter(
        self, context: nodes.EvalContext, value: Iterable[object], d: str = "", attribute: str | None = None
    ) -> str:
        items = value if attribute is None else map(make_attrgetter(self, attribute), value)
        return str(do_join(context, self._joinable(items, d), d))

    @jinja2.pass_eval_context
    def _replace_filter(self, context: nodes.EvalContext, s: str, old: str, new: str, count: int | None = None) -> str:
        self.fits(len(str(s)) + str(s).count(old) * len(new))
        return do_replace(context, s, old, new, count)

    def _indent(self, s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        self.fits(len(s) + (s.count("\n") + 1) * (width if isinstance(width, int) else len(width)))
        return do_indent(s, width, first, blank)


class _GenerationBlock(Extension):
    """``{% generation %}``: marks what the assistant wrote, for training; here it is only its contents."""

    tags = {"generation"}  # noqa: RUF012  (the base class declares it so)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Parse up to ``{% endgeneration %}``."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Meter(NodeTransformer):
    """Builds ``tick`` into loops and macros, and sends ``~`` through ``concatenate``."""

    def _tick_first(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        call = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(call, lineno=node.lineno))
        return node

    visit_For = visit_Macro = visit_CallBlock = _tick_first  # noqa: N815  (names are the visitor's protocol)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        parts = nodes.List(node.nodes)
        return nodes.Call(nodes.EnvironmentAttribute("concatenate"), [parts], [], None, None, lineno=node.lineno)


def _size(value: object) -> int:
    if isinstance(value, int):
        return max(0, value)
    return len(value) if isinstance(value, str | list | tuple) else 1


def _refuse_long_format(text: str) -> None:
    if _LONG_FORMAT.search(text):
        raise SecurityError("fields of a computed or four-digit width are not allowed in a format")


def _tojson(
    x: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As Hugging Face's: no HTML escapes, characters as they are."""
    if indent is not None and not 0 <= indent <= 16:
        raise SecurityError("tojson: indent must lie between 0 and 16")
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(template: str) -> str:
    if re.search(r"%[-_0^#]*\d", template):
        raise SecurityError("strftime_now: field widths are not allowed")
    return datetime.now().astimezone().strftime(template)
