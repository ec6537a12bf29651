from core.api import ToolServerSpec

SHELF = ToolServerSpec(name="shelf", impl="seam_tools.shelf:Shelf", api=1, summary="Tools in this process")
