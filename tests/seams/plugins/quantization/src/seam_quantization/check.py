from core.api import Verdict


def refine(request, probe):
    group = request.checkpoint.get("group", 48)
    return Verdict.of(None if group == 48 else f"groups of {group!r}, not 48")
