"""Tasks, their worker halves: which runner executes steps. `core.tasks` finds them."""
