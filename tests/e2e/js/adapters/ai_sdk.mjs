// @ai-sdk/openai-compatible, by the functions of `ai`.

import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

export const api = "chat";

export function make({ model }, script) {
  const fixed = { model, maxRetries: 0, onError() {} };

  async function ask(prompt, streamed) {
    if (!streamed) return [(await generateText({ ...fixed, prompt })).text];
    const pieces = [];
    for await (const piece of streamText({ ...fixed, prompt }).textStream) pieces.push(piece);
    return pieces;
  }

  async function loop(warmth, streamed) {
    const tools = {
      warmth: tool({
        description: "How warm a city is.",
        inputSchema: z.object({ city: z.string() }),
        execute: async ({ city }) => warmth(city),
      }),
    };
    const messages = [];
    const said = [];
    for (const content of [script.QUESTION, script.AGAIN]) {
      messages.push({ role: "user", content });
      const answer = (streamed ? streamText : generateText)({ ...fixed, messages, tools, stopWhen: stepCountIs(5) });
      const { text, response } = streamed
        ? { text: await answer.text, response: await answer.response }
        : await answer;
      said.push(text);
      messages.push(...response.messages);
    }
    return said;
  }

  async function structured() {
    const output = Output.object({ schema: z.object({ city: z.string(), degrees: z.number().int() }) });
    const fields = { ...fixed, output, prompt: script.SAID_CITY };
    const whole = (await generateText(fields)).output;
    return { "Output.object": whole, "Output.object streamed": await streamText(fields).output };
  }

  return { ask, loop, structured };
}
