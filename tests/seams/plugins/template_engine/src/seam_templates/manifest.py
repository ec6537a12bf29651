from core.api import TemplateEngineSpec

LINES = TemplateEngineSpec(
    name="lines",
    impl="seam_templates.engine:Lines",
    api=1,
    summary="A word before each message",
    priority=1,
    marks=("%",),
)
