"""The kind `core.chat_templates`: engines that make prompts of conversations."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

CHAT_TEMPLATE = Kind(
    group="core.chat_templates",
    label="template engine",
    summary="prompts of conversations",
    descriptor="core.api.descriptors:TemplateEngineSpec",
    option="chat_template_engine",
    help="Who compiles and renders chat templates; auto: the best installed; none.",
    contracts={"impl": Contract("core.api.templates:TemplateEngine")},
    torch_free=("impl",),
    checks=("chat_templates",),
)
