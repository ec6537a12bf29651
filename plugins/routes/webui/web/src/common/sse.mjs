// Server-sent events, read from the body of an answer.

/** There is no connection to the server, or it ended before the answer did. */
export class BrokeOff extends Error {}

/** Return what the promise of a browser's network function does; its `TypeError` becomes `BrokeOff`. */
export async function connected(promise) {
  try {
    return await promise;
  } catch (error) {
    throw error instanceof TypeError ? new BrokeOff("The server does not answer.") : error;
  }
}

/** Yield `{event, data, id}` of a stream of bytes; `id` is the last one that was given, "" before the first. */
export async function* events(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "", event = "message", id = "", data = [];
  try {
    for (;;) {
      const { done, value } = await connected(reader.read());
      rest += done ? decoder.decode() + "\n\n" : decoder.decode(value, { stream: true });
      // A carriage return at the end may be half of a line's end.
      const whole = !done && rest.endsWith("\r") ? rest.length - 1 : rest.length;
      const lines = rest.slice(0, whole).split(/\r\n|\n|\r/);
      rest = lines.pop() + rest.slice(whole);
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield { event, data: data.join("\n"), id };
          event = "message";
          data = [];
        } else {
          const at = line.indexOf(":");
          const field = at < 0 ? line : line.slice(0, at);
          const text = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
          if (field === "data") data.push(text);
          else if (field === "event") event = text;
          else if (field === "id") id = text;
        }
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Yield `{value, id}` for the objects of an answer until `[DONE]`.
 *
 * What the server says in an `error` event is thrown, and `BrokeOff` where the stream ends without `[DONE]`.
 */
export async function* objects(body) {
  for await (const { event, data, id } of events(body)) {
    if (data === "[DONE]") return;
    let value;
    try {
      value = JSON.parse(data);
    } catch {
      throw new BrokeOff("The answer broke off."); // half an event: the connection ended in it
    }
    if (event === "error" || value.error) throw new Error(value.error?.message ?? "The answer broke off.");
    yield { value, id };
  }
  throw new BrokeOff("The answer broke off.");
}
