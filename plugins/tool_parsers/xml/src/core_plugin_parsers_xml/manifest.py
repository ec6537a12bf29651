"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import ToolParserSpec

_BOTH = frozenset({"tools", "reasoning"})


def _spec(name: str, family: str, summary: str, *markers: str, special: bool = False) -> ToolParserSpec:
    return ToolParserSpec(
        name=name,
        impl=f"core_plugin_parsers_xml.families:{family}",
        api=1,
        summary=summary,
        markers=markers,
        reads=_BOTH,
        special_tokens=special,
    )


QWEN3_CODER = _spec("qwen3_coder", "QWEN3_CODER", "Qwen3 Coder: <function=f> and <parameter=k>", "<function=")
QWEN3_XML = _spec("qwen3_xml", "QWEN3_CODER", "Qwen3.5 and Nemotron: as qwen3_coder", "<function=")
STEP3P5 = _spec("step3p5", "QWEN3_CODER", "Step 3.5: as qwen3_coder")
STEP5 = _spec("step5", "VERBATIM", "Step 5: as qwen3_coder, white space in values is kept")
MIMO = _spec("mimo", "VERBATIM", "MiMo: as qwen3_coder, values as they are")
SEED_OSS = _spec("seed_oss", "SEED_OSS", "Seed OSS: <seed:tool_call> and <seed:think>", "<seed:tool_call>")
GLM45 = _spec("glm45", "GLM45", "GLM 4.5 and 4.6: <arg_key> and <arg_value>", "<arg_key>")
GLM47 = _spec("glm47", "GLM45", "GLM 4.7: as glm45", "<arg_key>")
LING3 = _spec("ling3", "GLM45", "Ling 3: as glm45")
POOLSIDE_V1 = _spec("poolside_v1", "GLM45", "Poolside: as glm45")
MINIMAX_M2 = _spec("minimax_m2", "MINIMAX_M2", "MiniMax M2: <invoke> in <minimax:tool_call>", "<minimax:tool_call>")
DOTS = _spec("dots", "DOTS", "dots: <invoke> in <dots_function_call>", "<dots_function_call>")
DEEPSEEK_V32 = _spec(
    "deepseek_v32", "DEEPSEEK_V32", "DeepSeek V3.2: DSML function calls", "<｜DSML｜function_calls>", special=True
)
DEEPSEEK_V4 = _spec("deepseek_v4", "DEEPSEEK_V4", "DeepSeek V4: DSML tool calls", "<｜DSML｜tool_calls>", special=True)
DEEPSEEK_V41 = _spec(
    "deepseek_v41", "DEEPSEEK_V41", "DeepSeek V4.1: DSML with spaced tags", "<｜DSML｜ calls>", special=True
)
MINICPM5 = _spec("minicpm5", "MINICPM5", 'MiniCPM 5: <function name="f"> and <param name="k">', "<function name=")
GLM = GLM45.replace(name="glm")
MINIMAX_M2_DASHED = MINIMAX_M2.replace(name="minimax-m2")
STEP3 = _spec("step3", "STEP3", "Step 3: thinks first; <steptml:invoke> calls", "<steptml:invoke", special=True)
MINIMAX_M3 = _spec(
    "minimax_m3", "MINIMAX_M3", "MiniMax M3: elements behind marks, <mm:think>", "]<]minimax[>[", special=True
)
MINIMAX_M3_DASHED = MINIMAX_M3.replace(name="minimax-m3")
KIMI_K3 = _spec("kimi_k3", "KIMI_K3", "Kimi K3: <|open|>tools<|sep|>", "<|open|>tools<|sep|>", special=True)
KIMI_K3_DASHED = KIMI_K3.replace(name="kimi-k3")
K2_HORIZON = _spec("k2_horizon", "K2_HORIZON", "K2 Horizon: <ifm|tool_call>", "<ifm|tool_call>", special=True)
HY_V3 = _spec("hy_v3", "HY", "Hy 3: <arg_key> and <arg_value> behind <tool_sep>", "<tool_sep", special=True)
HY_V4 = _spec("hy_v4", "HY", "Hy 4: as hy_v3", special=True)
MUSE = _spec("muse", "MUSE", "Muse: <atem:invoke> and recipients", "<atem:function_calls>", special=True)
MUSESPARK1X = MUSE.replace(name="musespark1x")
MUSE_GLIMMER = MUSE.replace(name="muse_glimmer")
DEEPSEEKV32 = DEEPSEEK_V32.replace(name="deepseekv32")
DEEPSEEKV4 = DEEPSEEK_V4.replace(name="deepseekv4")
DEEPSEEKV41 = DEEPSEEK_V41.replace(name="deepseekv41")
