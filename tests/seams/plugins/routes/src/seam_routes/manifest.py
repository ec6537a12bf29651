from core.api import RouteSpec

ECHO = RouteSpec(name="echo", impl="seam_routes.routes:Echo", api=1, summary="Says what it is told")
GREEDY = RouteSpec(name="greedy", impl="seam_routes.routes:Greedy", api=1, summary="Wants paths that are not its own")
