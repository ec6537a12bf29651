"""The engine: sources in Jinja become templates."""

from __future__ import annotations

from core.api import TemplateContext
from core_plugin_jinja.chat_template import JinjaTemplate


class JinjaEngine:
    """Compiles what checkpoints carry as `chat_template`."""

    def compile(self, source: str, context: TemplateContext) -> JinjaTemplate:
        """Return the template that `source` spells. Raises `ValueError`."""
        return JinjaTemplate(source, context)
