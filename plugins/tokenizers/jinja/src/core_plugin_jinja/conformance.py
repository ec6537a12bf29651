"""Templates and conversations that the conformance kit renders."""

from __future__ import annotations

from collections.abc import Iterator

from core.api import TemplateInput
from core_testing.conformance import TemplateSample

TURNS = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if mood %}({{ mood }}){% endif %}{% endif %}"
)
ALTERNATING = (
    "{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('user and assistant must take turns') }}{% endif %}[{{ message.content }}]{% endfor %}"
)
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
BROKEN = ("{% for %}", "{{ x", "{% endif %}", "{{ x | nothing_of_this_name }}")
USER = {"role": "user", "content": "Hi"}
TALK = (USER, {"role": "assistant", "content": "Yes?"})


def samples() -> Iterator[TemplateSample]:
    """Yield conversations, texts, refusals, and a template without an end."""
    yield TemplateSample(
        "turns with a variable",
        TURNS,
        TemplateInput(messages=TALK, variables={"mood": "calm"}),
        "<s><|user|>Hi\n<|assistant|>Yes?\n<|assistant|>(calm)",
        tokens={"bos_token": "<s>"},
        reads=frozenset({"messages", "mood"}),
        refused=[
            TemplateInput(messages=[{"role": "user", "content": [{"type": "image_url"}]}]),
            TemplateInput(messages=TALK, variables={"bos_token": ""}),
        ],
        broken=BROKEN,
        slow=ENDLESS,
    )
    yield TemplateSample(
        "an answer that goes on",
        ALTERNATING,
        TemplateInput(messages=TALK, add_generation_prompt=False, continue_final_message=True),
        "[Hi][Yes?",
        refused=[TemplateInput(messages=(USER, USER))],
        broken=BROKEN,
        slow="{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    )
