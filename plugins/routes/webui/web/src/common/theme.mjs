// Light or dark: as the system says, until somebody switches.

/** Show a theme; none: the system's. */
export function show(view, theme) {
  if (theme) view.document.documentElement.dataset.theme = theme;
}

/** Return the theme that a switch leads to from one, or from the system's. */
export function other(view, theme) {
  const dark = view.matchMedia("(prefers-color-scheme: dark)").matches;
  return (theme ?? (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
}
