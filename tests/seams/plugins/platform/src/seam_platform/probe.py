from core.api import ProbeResult


def probe():
    return ProbeResult(available=True, reason="a toy", facts={"amx": False, "sse": True}, features={"fp8_e4m3"})
