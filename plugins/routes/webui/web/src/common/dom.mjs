// Elements, made of data. Text is only ever set as text.

/** Return an element with properties, attributes (`aria-*`, `role`, ...), `on*` listeners and children. */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "scope") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Return a button. */
export function button(text, label, onclick) {
  return el("button", { type: "button", "aria-label": label, onclick }, text);
}

/** Put a text on the clipboard; say on the button whether that worked. */
export async function copy(text, node) {
  const before = node.textContent;
  try {
    await navigator.clipboard.writeText(text);
    node.textContent = "Copied";
  } catch {
    node.textContent = "Not allowed"; // pages that came over plain HTTP from another machine have no clipboard
  }
  setTimeout(() => { node.textContent = before; }, 1500);
}
