from core.api import LogitsSpec

BAN = LogitsSpec(
    name="ban",
    impl="seam_logits.processors:Ban",
    api=1,
    summary="Never samples the tokens in extra_args['ban']",
    args=("ban", "ban_after", "ban_breaks"),
    check="seam_logits.checks:check",
    options="seam_logits.options:BanOptions",
)
LIFT = LogitsSpec(
    name="lift", impl="seam_logits.processors:Lift", api=1, summary="Argmax-invariant sharpening", args=("lift",)
)
