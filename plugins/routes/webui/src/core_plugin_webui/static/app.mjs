// Where the page begins.
import { Page } from "./page.mjs";

new Page(window).open();
