// Where the operator view begins.
import { View } from "./operator/view.mjs";

new View(window).open();
