"""Templates that were written to hang, to fill memory or to look around: each costs its own request only."""

from __future__ import annotations

import resource
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api import RenderTimeoutError, RequestError
from core_testing.templates import CompiledTemplate

USER = [{"role": "user", "content": "hello"}]
SECONDS = 0.15
"""Given to each template; one operation between two looks at the clock may take as long again."""

ENDLESS = {
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "macro tree": "{% macro f(n) %}{% if n > 0 %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "recursive loop": "{% for x in [[1,2],[1,2]] recursive %}{{ loop([x, x]) if x is iterable else '' }}{% endfor %}",
    "filter in loops": "{% for i in range(99999) %}{% set x = messages | map(attribute='content') | list | sort %}"
    "{% for j in range(9999) %}{% endfor %}{% endfor %}",
    "caller": "{% macro m(n) %}{{ caller(n) }}{{ caller(n) }}{% endmacro %}"
    "{% macro f(n) %}{% if n %}{% call(k) m(n) %}{{ f(k - 1) }}{% endcall %}{% endif %}{% endmacro %}{{ f(50) }}",
    "blocks": "{% block a %}{% set n = namespace(i=0) %}{% for i in range(99999) %}{% for j in range(9999) %}"
    "{% set n.i = n.i + 1 %}{% endfor %}{% endfor %}{% endblock %}",
}

GREEDY = {
    "doubling text": "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "doubling by +": "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "doubling list": "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "laughing lists": "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
    "{{ n.x }}",
    "laughing dicts": "{% set n = namespace(x={}) %}{% for i in range(99) %}{% set n.x = {'a': n.x, 'b': n.x} %}"
    "{% endfor %}{{ n.x | tojson }}",
    "laughing calls": "{% set n = namespace(x={}) %}{% for i in range(99) %}{% set n.x = dict(a=n.x, b=n.x) %}"
    "{% endfor %}{{ n.x | string }}",
    "center": "{{ 'a' | center(1000000000) }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "expandtabs": "{{ '\\t'.expandtabs(1000000000) }}",
    "indent": "{{ 'a\\nb' | indent(1000000000) }}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "nested format": "{{ '{:{}}'.format(1, 1000000000) }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "format_map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "json indent": "{{ [[1], [2]] | tojson(indent=100000000) }}",
    "replace": "{% set x = 'a' * 1000000 %}{{ x.replace('a', x) }}",
    "replace filter": "{% set x = 'a' * 1000000 %}{{ x | replace('a', x) }}",
    "join": "{% set x = 'a' * 1000000 %}{{ [x, x, x, x] | join(x) | length }}{{ x.join(x) }}",
    "batch": "{{ [1] | batch(1000000000, 0) | list }}",
    "slice": "{{ [1] | slice(1000000000) | list }}",
    "power": "{{ 10 ** 1000000000 }}",
    "round": "{{ 1.5 | round(1000000000, 'ceil') }}",
    "squares": "{% set n = namespace(x=10) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "dates": "{{ strftime_now('%1000000000Y') }}",
    "range": "{{ range(1000000000) | list }}",
}


def refusal(source, **limits):
    """Render; return the refusal and the processor seconds it took."""
    began = time.thread_time()
    with pytest.raises(RequestError) as caught:
        CompiledTemplate(source, {}, **limits).render(USER, seconds=SECONDS)
    return caught.value, time.thread_time() - began


@pytest.mark.covers("REND-07")
@pytest.mark.parametrize("name", ENDLESS)
def test_endless_templates_run_out_of_time(name):
    error, seconds = refusal(ENDLESS[name])
    assert isinstance(error, RenderTimeoutError) or "RecursionError" in error.message
    assert (error.status, error.param) == (400, "messages") and seconds < 10 * SECONDS


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_templates_are_stopped_before_they_grow(name):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error, seconds = refusal(GREEDY[name])
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert error.param == "messages" and seconds < 20 * SECONDS
    assert grown < 300, f"{grown:.0f} MiB"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ self.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ (messages | map('attr', '__class__') | list)[0].__mro__ }}",
        "{{ ''.format.__self__.__class__.__mro__ }}",
        "{{ '{0.__class__.__mro__}'.format('') | length }}{{ ''.join(['{0.__class__}'.format(1)]).x.y }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
        "{{ lipsum() }}",
        "{{ 'a' | urlize }}",
    ],
)
def test_nothing_but_data_is_within_reach(source):
    with pytest.raises((RequestError, ValueError)):
        CompiledTemplate(source, {}).render(USER)


def test_time_is_given_by_whoever_asks():
    template = CompiledTemplate("{% for i in range(60000) %}{% endfor %}done", {})
    assert template.render(USER) == "done"
    with pytest.raises(RenderTimeoutError):
        template.render(USER, seconds=0.001)
    assert template.render(USER) == "done"


def test_what_a_request_brings_is_metered_too():
    tools = [{"a": [{"b": number} for number in range(1000)]} for _ in range(100)]
    template = CompiledTemplate("done", {})
    with pytest.raises(RenderTimeoutError):
        template.render(USER, tools, seconds=0.002)
    assert template.render(USER, tools) == "done"


def test_sources_are_bounded():
    for source in ("{# " + "x" * 2**20 + " #}", "{{ " + "(" * 5000 + ")" * 5000 + " }}"):
        with pytest.raises(ValueError):
            CompiledTemplate(source, {})


def test_large_honest_conversations_are_rendered():
    source = (
        "{%- set n = namespace(seen=0, texts=[]) -%}"
        "{%- for m in messages -%}{%- set n.seen = n.seen + 1 -%}"
        "{%- set body = m.content.split('</think>')[-1].strip('\\n') | replace('\\t', '    ') -%}"
        "<|{{ m.role }}|>{{ body ~ '\\n' }}{{ {'n': n.seen, 'last': loop.last} | tojson(indent=2) }}"
        "{%- endfor -%}"
    )
    messages = [{"role": "user", "content": f"{number} " + "word " * 200} for number in range(2000)]
    text = CompiledTemplate(source, {}).render(messages)
    assert len(text) > 2_000_000 and text.endswith('"last": true\n}')


def test_developers_are_systems_where_a_template_does_not_know_them():
    messages = [{"role": "developer", "content": "be brief"}]
    assert CompiledTemplate("{{ messages[0].role }}", {}).render(messages) == "system"
    assert CompiledTemplate("{# developer #}{{ messages[0].role }}", {}).render(messages) == "developer"


PARTS = [
    "{% for m in messages %}{% for part in m.content %}<{{ part.text }}>{% endfor %}{% endfor %}",
    "{% for m in messages %}{% set c = m['content'] %}{% if c is string %}{{ c }}{% else %}"
    "{% for part in c %}<{{ part['text'] }}>{% endfor %}{% endif %}{% endfor %}",
]


@pytest.mark.covers("REND-07")
@pytest.mark.parametrize(("source", "text"), list(zip(PARTS, ("<{}>", "{}"))), ids=["attribute", "variable"])
def test_templates_that_go_through_parts_get_parts(source, text):
    """Those that ask whether a content is a text get one as it is."""
    template = CompiledTemplate(source, {})
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert template.template.content_format == "openai"
    assert template.render(
        [{"role": "user", "content": parts}, {"role": "user", "content": "c"}]
    ) == "<a><b>" + text.format("c")
    end = [{"role": "user", "content": "q"}, {"role": "assistant", "content": [*parts, {"type": "text", "text": "c"}]}]
    told = template.render(end, add_generation_prompt=False, continue_final_message=True)
    assert told == text.format("q") + "<a><b><c"


def test_the_format_of_contents_can_be_told():
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    source = "{{ messages[0].content }}"
    assert CompiledTemplate(source, {}).template.content_format == "string"
    forced = CompiledTemplate(source, {}, content_format="openai")
    assert forced.render([{"role": "user", "content": content}]) == str(content)
    assert CompiledTemplate(PARTS[1], {}, content_format="string").render([{"role": "user", "content": "c"}]) == "c"


VALUES = st.sampled_from(["n.x", "messages", "messages[0].content", "'ab'", "[1]", "3", "{'a': 1}", "n.y"])
STEPS = st.sampled_from(
    [
        "{{% set n.x = {a} ~ {b} %}}",
        "{{% set n.x = {a} + {b} %}}",
        "{{% set n.x = [{a}, {b}] %}}",
        "{{% set n.y = {{'k': {a}, 'l': {b}}} %}}",
        "{{% set n.x = ({a} | string) * 50 %}}",
        "{{% set n.y = ({a} | string) | replace('a', {b} | string) %}}",
        "{{% set n.y = ({a} | list) | join({b} | string) %}}",
        "{{{{ {a} | tojson | length }}}}",
        "{{{{ {a} }}}}",
        "{{% if {a} == {b} %}}x{{% endif %}}",
    ]
)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.tuples(STEPS, VALUES, VALUES), min_size=1, max_size=6))
def test_whatever_is_done_again_and_again_ends(steps):
    body = "".join(step.format(a=a, b=b) for step, a, b in steps)
    source = "{% set n = namespace(x='a', y=[]) %}{% for i in range(40) %}" + body + "{% endfor %}"
    began = time.thread_time()
    try:
        text = CompiledTemplate(source, {}, max_chars=100_000).render(USER, seconds=0.1)
    except RequestError as error:
        assert error.param == "messages"
    else:
        assert len(text) <= 100_000
    assert time.thread_time() - began < 3
