from core.api import StatSinkSpec

MEMORY = StatSinkSpec(name="memory", impl="seam_sinks.sinks:Memory", api=1, summary="Remembers what it is told")
BROKEN = StatSinkSpec(name="broken", impl="seam_sinks.sinks:Broken", api=1, summary="Raises")
