"""Families whose calls are written with elements."""

from __future__ import annotations

from core_plugin_parsers import (
    Block,
    Either,
    Element,
    Family,
    Headers,
    JsonCalls,
    NestedCalls,
    PairCalls,
    Prose,
    Written,
    XmlCalls,
)

THINK = Block(("<think>",), Prose.REASONING, ("</think>",))


def written_functions(opens: str, closes: str, *, line: str = "\n", around: str = "") -> Written:
    """Return how `functions` are written: `line` stands between tags, `around` on both sides of a value."""
    return Written(
        f"{opens}{line}<function={{name}}>{line}",
        f"</function>{line}{closes}",
        (f"<parameter={{key}}>{around}", f"{around}</parameter>{line}"),
        between="\n",
    )


def written_invocations(opens: str, closes: str, prefix: str = "", *, said: str = "") -> Written:
    """Return how `invocations` are written; `said` stands behind the name of each parameter."""
    return Written(
        f'<{prefix}invoke name="{{name}}">\n',
        f"</{prefix}invoke>",
        (f'<{prefix}parameter name="{{key}}"{said}>', f"</{prefix}parameter>\n"),
        opens=f"{opens}\n",
        closes=f"\n{closes}",
        between="\n",
    )


def calls(opens: str, form: XmlCalls) -> tuple[Block, Block]:
    """Return the block of calls behind a tag, and of calls whose tag is missing."""
    return Block((opens,), form), Block((form.call.opens,), form, tag_is_content=True)


def functions(opens: str, closes: str, *, trim: bool) -> tuple[Block, Block]:
    """Return the blocks of `<function=f><parameter=k>v</parameter></function>`.

    Args:
        trim: A line break stands on both sides of each value.
    """
    form = XmlCalls(
        Element("<function=", "</function>"), Element("<parameter=", "</parameter>"), closes=(closes,), trim=trim
    )
    return calls(opens, form)


def invocations(
    opens: str, closes: str, prefix: str = "", *, string_attribute: str | None = None
) -> tuple[Block, Block]:
    """Return the blocks of `<invoke name="f"><parameter name="k">v</parameter></invoke>`, each tag with a prefix."""
    form = XmlCalls(
        Element(f"<{prefix}invoke", f"</{prefix}invoke>", ("name",)),
        Element(f"<{prefix}parameter", f"</{prefix}parameter>", ("name",)),
        closes=(closes,),
        string_attribute=string_attribute,
    )
    return calls(opens, form)


QWEN3_CODER = Family(
    (THINK, *functions("<tool_call>", "</tool_call>", trim=True)),
    written=written_functions("<tool_call>", "</tool_call>", around="\n"),
)
VERBATIM = Family(
    (THINK, *functions("<tool_call>", "</tool_call>", trim=False)),
    written=written_functions("<tool_call>", "</tool_call>", line=""),
)
SEED_OSS = Family(
    (
        Block(("<seed:think>",), Prose.REASONING, ("</seed:think>",)),
        *functions("<seed:tool_call>", "</seed:tool_call>", trim=False),
    ),
    written=written_functions("<seed:tool_call>", "</seed:tool_call>"),
)
GLM45 = Family(
    (THINK, Block(("<tool_call>",), PairCalls("</tool_call>"))),
    written=Written(
        "<tool_call>{name}\n", "</tool_call>", ("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>\n"), between="\n"
    ),
)
MINIMAX_M2 = Family(
    (THINK, *invocations("<minimax:tool_call>", "</minimax:tool_call>")),
    written=written_invocations("<minimax:tool_call>", "</minimax:tool_call>"),
)
DOTS = Family(
    (THINK, *invocations("<dots_function_call>", "</dots_function_call>")),
    written=written_invocations("<dots_function_call>", "</dots_function_call>"),
)
DEEPSEEK_V32 = Family(
    (
        THINK,
        *invocations("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "｜DSML｜", string_attribute="string"),
    ),
    written=written_invocations(
        "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "｜DSML｜", said=' string="{string}"'
    ),
)
DEEPSEEK_V4 = Family(
    (THINK, *invocations("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "｜DSML｜", string_attribute="string")),
    written=written_invocations("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "｜DSML｜", said=' string="{string}"'),
)
DEEPSEEK_V41 = Family(
    (THINK, *invocations("<｜DSML｜ calls>", "</｜DSML｜ calls>", "｜DSML｜ ", string_attribute="string")),
    written=written_invocations("<｜DSML｜ calls>", "</｜DSML｜ calls>", "｜DSML｜ ", said=' string="{string}"'),
)
MINICPM5 = Family(
    (
        THINK,
        Block(
            ("<function ",),
            XmlCalls(
                Element("<function ", "</function>", ("name",)),
                Element("<param ", "</param>", ("name",)),
                verbatim=("<![CDATA[", "]]>"),
            ),
            tag_is_content=True,
        ),
    ),
    written=Written('<function name="{name}">', "</function>", ('<param name="{key}">', "</param>"), between="\n"),
)

STEP3 = Family(
    (
        THINK,
        Block(
            ("<｜tool_calls_begin｜>",),
            XmlCalls(
                Element("<steptml:invoke", "</steptml:invoke>", ("name",)),
                Element("<steptml:parameter", "</steptml:parameter>", ("name",)),
                closes=("<｜tool_calls_end｜>",),
                around=("<｜tool_call_begin｜>function<｜tool_sep｜>", "<｜tool_call_end｜>"),
            ),
        ),
    ),
    begins=Prose.REASONING,
    drops=("<think>",),
    written=Written(
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">',
        "</steptml:invoke><｜tool_call_end｜>",
        ('<steptml:parameter name="{key}">', "</steptml:parameter>"),
        opens="<｜tool_calls_begin｜>",
        closes="<｜tool_calls_end｜>",
    ),
)

_M3 = "]<]minimax[>["
MINIMAX_M3 = Family(
    (
        Block(("<mm:think>",), Prose.REASONING, ("</mm:think>",)),
        Block((f"{_M3}<tool_call>",), NestedCalls(_M3, "tool_call")),
    ),
    written=Written(
        f'{_M3}<invoke name="{{name}}">\n',
        f"{_M3}</invoke>",
        (f"{_M3}<{{key}}>", f"{_M3}</{{key}}>\n"),
        opens=f"{_M3}<tool_call>\n",
        closes=f"\n{_M3}</tool_call>",
        between="\n",
    ),
)

KIMI_K3 = Family(
    (
        Block(("<|open|>think<|sep|>",), Prose.REASONING, ("<|close|>think<|sep|>",)),
        Block(("<|open|>response<|sep|>",), Prose.TEXT, ("<|close|>response<|sep|>",)),
        Block(
            ("<|open|>tools<|sep|>",),
            XmlCalls(
                Element("<|open|>call", "<|close|>call<|sep|>", ("tool", "name"), ends="<|sep|>"),
                Element("<|open|>argument", "<|close|>argument<|sep|>", ("key",), ends="<|sep|>"),
                closes=("<|close|>tools<|sep|>",),
                string_attribute="type",
            ),
        ),
    ),
    drops=("<|close|>message<|sep|>", "<|end_of_msg|>"),
    written=Written(
        '<|open|>call tool="{name}" index="{number}"<|sep|>',
        "<|close|>call<|sep|>",
        ('<|open|>argument key="{key}" type="{type}"<|sep|>', "<|close|>argument<|sep|>"),
        opens="<|open|>tools<|sep|>",
        closes="<|close|>tools<|sep|>",
    ),
)

_EFFORTS = ("think", "think_fast", "think_faster")
K2_HORIZON = Family(
    (
        Block(
            tuple(f"<ifm|{effort}>" for effort in _EFFORTS),
            Prose.REASONING,
            tuple(f"</ifm|{effort}>" for effort in _EFFORTS),
        ),
        Block(
            ("<ifm|tool_call>",),
            Either(
                {"{": JsonCalls(closes=("</ifm|tool_call>",))},
                PairCalls(
                    "</ifm|tool_call>",
                    key=("<ifm|arg_key>", "</ifm|arg_key>"),
                    value=("<ifm|arg_value>", "</ifm|arg_value>"),
                    kind=("<ifm|arg_type>", "</ifm|arg_type>"),
                ),
            ),
        ),
    ),
    drops=("<ifm|tool_calls>", "</ifm|tool_calls>"),
    written=Written(
        "<ifm|tool_call>{name}\n",
        "</ifm|tool_call>",
        ("<ifm|arg_key>{key}</ifm|arg_key>\n<ifm|arg_value>", "</ifm|arg_value>\n"),
        opens="<ifm|tool_calls>\n",
        closes="\n</ifm|tool_calls>",
        between="\n",
    ),
)

_HY_SUFFIXES = ("", ":opensource")


def _hy_calls(suffix: str) -> Block:
    form = PairCalls(
        f"</tool_call{suffix}>",
        key=(f"<arg_key{suffix}>", f"</arg_key{suffix}>"),
        value=(f"<arg_value{suffix}>", f"</arg_value{suffix}>"),
        separator=(f"<tool_sep{suffix}>",),
    )
    return Block((f"<tool_call{suffix}>",), form)


HY = Family(
    (
        Block(
            tuple(f"<think{suffix}>" for suffix in _HY_SUFFIXES),
            Prose.REASONING,
            tuple(f"</think{suffix}>" for suffix in _HY_SUFFIXES),
        ),
        *map(_hy_calls, _HY_SUFFIXES),
    ),
    drops=tuple(f"<{slash}tool_calls{suffix}>" for suffix in _HY_SUFFIXES for slash in ("", "/")),
)

_MUSE_HEADER = Headers("<|message|>", {"to=self": Prose.REASONING})
MUSE = Family(
    (
        Block(("<|start|>assistant",), _MUSE_HEADER),
        Block(
            ("<atem:function_calls>",),
            XmlCalls(
                Element("<atem:invoke", "</atem:invoke>", ("name",)),
                Element("<atem:parameter", "</atem:parameter>", ("name",)),
                closes=("</atem:function_calls>",),
            ),
        ),
    ),
    bare=Headers("<|message|>", _MUSE_HEADER.kinds, begins="to="),
    bare_heads="t",
    drops=("<|eom|>", "<|eot|>"),
    written=Written(
        '<|start|>assistant to={name}<|message|><atem:function_calls>\n<atem:invoke name="{name}">\n',
        "</atem:invoke>\n</atem:function_calls>",
        ('<atem:parameter name="{key}">', "</atem:parameter>\n"),
        between="<|eom|>",
    ),
)
