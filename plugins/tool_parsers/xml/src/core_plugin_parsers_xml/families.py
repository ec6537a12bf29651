"""Families whose calls are written with elements."""

from __future__ import annotations

from core_plugin_parsers import Block, Element, Family, PairCalls, Prose, XmlCalls

THINK = Block(("<think>",), Prose.REASONING, ("</think>",))


def functions(opens: str, closes: str, *, trim: bool = True) -> Block:
    """Return a block of `<function=f><parameter=k>v</parameter></function>`."""
    form = XmlCalls(
        Element("<function=", "</function>"), Element("<parameter=", "</parameter>"), closes=(closes,), trim=trim
    )
    return Block((opens,), form)


def invocations(opens: str, closes: str, prefix: str = "", *, string_attribute: str | None = None) -> Block:
    """Return a block of `<invoke name="f"><parameter name="k">v</parameter></invoke>`, each tag with a prefix."""
    form = XmlCalls(
        Element(f"<{prefix}invoke", f"</{prefix}invoke>", "name"),
        Element(f"<{prefix}parameter", f"</{prefix}parameter>", "name"),
        closes=(closes,),
        string_attribute=string_attribute,
    )
    return Block((opens,), form)


QWEN3_CODER = Family((THINK, functions("<tool_call>", "</tool_call>")))
VERBATIM = Family((THINK, functions("<tool_call>", "</tool_call>", trim=False)))
SEED_OSS = Family(
    (
        Block(("<seed:think>",), Prose.REASONING, ("</seed:think>",)),
        functions("<seed:tool_call>", "</seed:tool_call>"),
    )
)
GLM45 = Family((THINK, Block(("<tool_call>",), PairCalls("</tool_call>"))))
MINIMAX_M2 = Family((THINK, invocations("<minimax:tool_call>", "</minimax:tool_call>")))
DOTS = Family((THINK, invocations("<dots_function_call>", "</dots_function_call>")))
DEEPSEEK_V32 = Family(
    (THINK, invocations("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "｜DSML｜", string_attribute="string"))
)
DEEPSEEK_V4 = Family(
    (THINK, invocations("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "｜DSML｜", string_attribute="string"))
)
DEEPSEEK_V41 = Family(
    (THINK, invocations("<｜DSML｜ calls>", "</｜DSML｜ calls>", "｜DSML｜ ", string_attribute="string"))
)
MINICPM5 = Family(
    (
        THINK,
        Block(
            ("<function ",),
            XmlCalls(
                Element("<function ", "</function>", "name"),
                Element("<param ", "</param>", "name"),
                opened=True,
                verbatim=("<![CDATA[", "]]>"),
            ),
        ),
    )
)
