// @anthropic-ai/sdk.

import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";

export const api = "messages";

export function make({ client }, script) {
  const messages = client.withOptions({ maxRetries: 0 }).messages;
  const fixed = { model: "MODEL", max_tokens: 400 };
  const user = (content) => ({ role: "user", content });

  async function ask(text, streamed) {
    const fields = { ...fixed, messages: [user(text)] };
    if (!streamed) return (await messages.create(fields)).content.map((block) => block.text);
    const pieces = [];
    await messages.stream(fields).on("text", (piece) => pieces.push(piece)).finalMessage();
    return pieces;
  }

  async function loop(warmth, streamed) {
    const { name, description, parameters } = script.WARMTH;
    const tools = [{ name, description, input_schema: parameters }];
    const turns = [];
    const said = [];
    for (const question of [script.QUESTION, script.AGAIN]) {
      turns.push(user(question));
      for (;;) {
        const fields = { ...fixed, tools, messages: turns };
        const answer = await (streamed ? messages.stream(fields).finalMessage() : messages.create(fields));
        turns.push({ role: "assistant", content: answer.content });
        const calls = answer.content.filter((block) => block.type === "tool_use");
        if (calls.length === 0) {
          said.push(answer.content.map((block) => block.text ?? "").join(""));
          break;
        }
        const result = ({ id, input }) => ({ type: "tool_result", tool_use_id: id, content: warmth(input.city) });
        turns.push(user(calls.map(result)));
      }
    }
    return said;
  }

  async function structured() {
    const format = zodOutputFormat(z.object({ city: z.string(), degrees: z.number().int() }));
    const fields = { ...fixed, messages: [user(script.SAID_CITY)], output_config: { format } };
    const parsed = (await messages.parse(fields)).parsed_output;
    return { parse: parsed, stream: (await messages.stream(fields).finalMessage()).parsed_output };
  }

  return { ask, loop, structured };
}
