"""Options of core, but for choices of plugins: one model a section, each field a flag, variable and key."""
