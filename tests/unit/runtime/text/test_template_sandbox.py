import time
from typing import Any

import jinja2
import pytest

from tribar.runtime.text.template_sandbox import TemplateEnvironment

ENVIRONMENT = TemplateEnvironment(max_chars=100_000)


def render(source: str, time_limit_s: float = 10.0, **variables: Any) -> str:
    return ENVIRONMENT.render_bounded(ENVIRONMENT.compile_metered(source), variables, time_limit_s)


@pytest.mark.parametrize(
    "source",
    [
        "{{ lipsum.__globals__ }}",
        "{{ lipsum.__globals__['os'].popen('touch /tmp/owned') }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ cycler.__init__ }}",
        "{{ joiner.__init__.__globals__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__code__ }}",
        "{{ (''|attr('__class__')).__mro__ }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{% include '/etc/hostname' %}",
    ],
)
def test_templates_cannot_reach_python(source: str) -> None:
    """BUG-049."""
    messages = [{"role": "user"}]
    with pytest.raises((jinja2.TemplateError, TypeError)):
        render(source, messages=messages)
    assert messages == [{"role": "user"}]


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10**10) %}{% endfor %}",
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * 'a' }}",
        "{{ [1] * 10**9 }}",
        "{{ 10 ** (10 ** 8) }}",
        "{% set ns = namespace(n=9) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{{ range(99999)|join('a' * 99999) }}",
        "{{ ('a' * 99999).join(range(99999)|map('string')) }}",
        "{{ ('a' * 99999)|replace('a', 'a' * 99999) }}",
        "{{ ('a' * 99999).replace('a', 'a' * 99999) }}",
        "{{ ('\n' * 99999)|indent(99999) }}",
        "{{ 'a'.center(10**9) }}",
        "{{ 'a'.ljust(10**9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (10**9, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{w}}'.format(1, w=10**9) }}",
        "{{ [1]|tojson(indent=10**9) }}",
        "{{ strftime_now('%1000000000d') }}",
        "{% for i in range(99999) %}aaaaaaaaaa{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    ],
)
def test_bombs_are_stopped_early(source: str) -> None:
    """BUG-049: what a short template can blow up is refused before it is made."""
    start_s = time.process_time()
    with pytest.raises((jinja2.TemplateError, OverflowError, RecursionError)):
        render(source)
    assert time.process_time() - start_s < 5


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% set x %}{% for i in range(9999) %}{% for j in range(9999) if false %}{% endfor %}{% endfor %}{% endset %}",
    ],
)
def test_endless_templates_run_out_of_time(source: str) -> None:
    """BUG-049: also when they print nothing."""
    start_s = time.process_time()
    with pytest.raises(jinja2.TemplateError, match="out of time"):
        render(source, time_limit_s=0.05)
    assert time.process_time() - start_s < 5


@pytest.mark.parametrize("source", ["{{ 'a'|center(10**9) }}", "{{ [1]|batch(10**9, 0)|list }}", "{{ 2|nothing }}"])
def test_filters_that_are_left_out_are_errors_at_load(source: str) -> None:
    with pytest.raises(jinja2.TemplateSyntaxError, match="No filter named"):
        ENVIRONMENT.compile_metered(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ 'a' ~ 1 ~ none ~ x ~ [1] }}", "a1None[1]"),
        ("{{ 'ab' * 2 + 'c' }}{{ 2 ** 10 }}{{ 7 % 3 }}{{ '%02d' % 3 }}", "ababc1024103"),
        ("{{ ['a', 1]|join('-') }}{{ [{'n': 'x'}, {'n': 'y'}]|join(',', attribute='n') }}", "a-1x,y"),
        ("{{ 'aXa'|replace('a', 'b') }}{{ 'aXa'|replace('a', 'b', 1) }}{{ 'aXa'.replace('a', 'c') }}", "bXbbXacXc"),
        ("{{ 'a\nb'|indent(2) }}{{ 'a\nb'|indent(2, true) }}", "a\n  b  a\n  b"),
        ("{{ {'b': '<é>', 'a': [1, none, true]}|tojson }}", '{"b": "<é>", "a": [1, null, true]}'),
        ("{{ {'b': 1}|tojson(indent=2) }}", '{\n  "b": 1\n}'),
        ("{{ {'b': 1, 'a': 2}|tojson(separators=(',', ':'), sort_keys=true) }}", '{"a":2,"b":1}'),
        (
            "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}"
            "{% endfor %}",
            "013",
        ),
        ("{% for i in [] %}x{% else %}none{% endfor %}", "none"),
        ("{% generation %}said {{ 1 }}{% endgeneration %}", "said 1"),
        (
            "{% macro f(a, b='z') %}{{ a ~ b }}{{ caller() if caller }}{% endmacro %}{% call f('y') %}!{% endcall %}",
            "yz!",
        ),
        ("{% for x in [[1, [2]]] recursive %}{{ x if x is number else loop(x) }}{% endfor %}", "12"),
        ("  {% if true %}\n    x\n  {% endif %}\ny", "    x\ny"),
        ("{{ '{} {b:.2f}'.format(1, b=2.5) }}", "1 2.50"),
    ],
)
def test_ordinary_templates_render_as_in_jinja(source: str, expected: str) -> None:
    assert render(source) == expected


def test_the_date_is_todays() -> None:
    before, text, after = time.strftime("%Y"), render("{{ strftime_now('%Y') }}"), time.strftime("%Y")
    assert text in {before, after}


def test_raise_exception_carries_its_message() -> None:
    with pytest.raises(jinja2.TemplateError, match="no critics"):
        render("{{ raise_exception('no critics') }}")
