// Where the chat page begins.
import { Page } from "./chat/page.mjs";
import { Prose } from "./prose/prose.mjs";

new Page(window, { prose: Prose }).open();
