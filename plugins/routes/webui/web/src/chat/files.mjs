// Conversations as files.
import { el } from "../common/dom.mjs";

/** Offer conversations as a file. */
export function save(store, conversations = store.conversations) {
  const address = URL.createObjectURL(new Blob([store.exported(conversations)], { type: "application/json" }));
  el("a", { href: address, download: "core-conversations.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Add the conversations of the file that was chosen; return how many there were. */
export async function load(chooser, store) {
  const [file] = chooser.files;
  chooser.value = "";
  return file ? store.imported(await file.text()) : 0;
}
