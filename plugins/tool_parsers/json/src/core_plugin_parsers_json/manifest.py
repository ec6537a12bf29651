"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import ToolParserSpec

_TOOLS = frozenset({"tools"})
_BOTH = frozenset({"tools", "reasoning"})


def _spec(
    name: str, family: str, summary: str, *markers: str, reads: frozenset[str] = _TOOLS, special: bool = False
) -> ToolParserSpec:
    return ToolParserSpec(
        name=name,
        impl=f"core_plugin_parsers_json.families:{family}",
        api=1,
        summary=summary,
        markers=markers,
        reads=reads,
        special_tokens=special,
    )


QWEN3_JSON = _spec("qwen3_json", "HERMES", "Qwen3: JSON between <tool_call> tags", "<tool_call>", reads=_BOTH)
LLAMA3_JSON = _spec(
    "llama3_json", "LLAMA3", "Llama 3: JSON objects, bare or behind <|python_tag|>", "<|python_tag|>", special=True
)
LLAMA4_JSON = _spec("llama4_json", "LLAMA3", "Llama 4 with JSON calls", special=True)
MISTRAL = _spec(
    "mistral", "MISTRAL", "Mistral: [TOOL_CALLS] and [THINK]", "[TOOL_CALLS]", reads=_BOTH, special=True
).replace(call_id="{random:.9}")  # templates of Mistral refuse ids of another length
GRANITE = _spec(
    "granite", "GRANITE", "Granite 3: a JSON array behind <|tool_call|>", "<|tool_call|>", reads=_BOTH, special=True
)
GRANITE4 = _spec("granite4", "HERMES", "Granite 4: JSON between <tool_call> tags", reads=_BOTH)
GRANITE_20B_FC = _spec("granite-20b-fc", "GRANITE_20B", "Granite 20B function calling", "<function_call>")
INTERNLM = _spec("internlm", "INTERNLM", "InternLM 2: JSON between action tags", "<|action_start|>", special=True)
JAMBA = _spec("jamba", "JAMBA", "Jamba: a JSON array between <tool_calls> tags")
HUNYUAN_A13B = _spec("hunyuan_a13b", "HUNYUAN", "Hunyuan A13B: thinking, answer, JSON array", "<answer>", reads=_BOTH)
PHI4_MINI_JSON = _spec("phi4_mini_json", "PHI4_MINI", "Phi-4 mini: functools[...]", "functools")
XLAM = _spec("xlam", "XLAM", "xLAM: a JSON array, bare, fenced or tagged", reads=_BOTH)
DEEPSEEK_V3 = _spec(
    "deepseek_v3", "DEEPSEEK_V3", "DeepSeek V3 and R1: fenced JSON", "```json", reads=_BOTH, special=True
)
DEEPSEEK_V31 = _spec(
    "deepseek_v31", "DEEPSEEK_V31", "DeepSeek V3.1: name and JSON", "<｜tool▁sep｜>", reads=_BOTH, special=True
)
KIMI_K2 = _spec(
    "kimi_k2",
    "KIMI_K2",
    "Kimi K2: sections of numbered calls",
    "<|tool_calls_section_begin|>",
    reads=_BOTH,
    special=True,
).replace(call_id="functions.{name}:{number}")
ERNIE45 = _spec("ernie45", "ERNIE45", "ERNIE 4.5: thinking, response, JSON", "<response>", reads=_BOTH)
LONGCAT = _spec(
    "longcat", "LONGCAT", "LongCat: JSON between <longcat_tool_call> tags", "<longcat_tool_call>", reads=_BOTH
)
GIGACHAT3 = _spec(
    "gigachat3", "GIGACHAT3", "GigaChat 3: JSON behind <|function_call|>", "<|function_call|>", special=True
)
APERTUS = _spec(
    "apertus", "APERTUS", "Apertus: an array of {name: arguments}", "<|tools_prefix|>", reads=_BOTH, special=True
)
COHERE_COMMAND3 = _spec(
    "cohere_command3",
    "COHERE",
    "Command A: thinking, response and action blocks",
    "<|START_ACTION|>",
    reads=_BOTH,
    special=True,
)
COHERE_COMMAND4 = _spec(
    "cohere_command4",
    "COHERE",
    "Command A+: as cohere_command3, with text blocks",
    "<|START_TEXT|>",
    reads=_BOTH,
    special=True,
)
INKLING = _spec(
    "inkling", "INKLING", "Inkling: typed blocks", "<|content_invoke_tool_json|>", reads=_BOTH, special=True
)
PLAMO3 = _spec(
    "plamo3",
    "PLAMO3",
    "PLaMo 3: requests of a name and JSON arguments",
    "<|plamo:begin_tool_requests:plamo|>",
    reads=_BOTH,
    special=True,
)
QWEN = QWEN3_JSON.replace(name="qwen")
QWEN25 = QWEN3_JSON.replace(name="qwen25")
TRINITY = QWEN3_JSON.replace(name="trinity")
LLAMA3 = LLAMA3_JSON.replace(name="llama3")
INTERNS1 = INTERNLM.replace(name="interns1")
DEEPSEEKV3 = DEEPSEEK_V3.replace(name="deepseekv3")
DEEPSEEKV31 = DEEPSEEK_V31.replace(name="deepseekv31")
