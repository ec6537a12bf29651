// The messages of a conversation are a tree: what is asked or answered again is a branch beside what was there.
//
// Each message has an `id` and the id of its `parent` (null for the first). `leaf` of the conversation is the id of the
// last message of the branch that is shown. Of messages with one parent the newest is the last in the list.
import { newId } from "./records.mjs";

/** Return the messages of the branch that is shown, the first one first. */
export function branch({ messages, leaf }) {
  const known = new Map(messages.map((message) => [message.id, message]));
  const found = [];
  for (let one = known.get(leaf); one; one = known.get(one.parent)) found.unshift(one);
  return found;
}

/** Return the last message that is shown; undefined for a conversation without any. */
export function last({ messages, leaf }) {
  return messages.find(({ id }) => id === leaf);
}

/** Return a message and what stands in its place in other branches, the oldest first. */
export function versions({ messages }, { parent }) {
  return messages.filter((other) => other.parent === parent);
}

/** Return the message whose answer is coming, in whichever tab and branch; undefined if none is. */
export function coming({ messages }) {
  return messages.find(({ answering }) => answering !== undefined);
}

/** Put a message behind the last one that is shown; return it. */
export function add(conversation, message) {
  const made = { ...message, id: newId(), parent: conversation.leaf };
  conversation.messages.push(made);
  conversation.leaf = made.id;
  return made;
}

/** Show the branch of a message: up to it, and the newest of what follows. */
export function choose(conversation, message) {
  conversation.leaf = message.id;
  for (;;) {
    const next = conversation.messages.findLast(({ parent }) => parent === conversation.leaf);
    if (!next) return;
    conversation.leaf = next.id;
  }
}

/** Show what is in front of a message, so that something else can be put in its place. */
export function leaveOut(conversation, message) {
  conversation.leaf = message.parent;
}

/** Remove a message that nothing follows; another version of it is shown, if there is one. */
export function remove(conversation, message) {
  conversation.messages = conversation.messages.filter((other) => other !== message);
  const before = conversation.messages.find(({ id }) => id === message.parent);
  conversation.leaf = message.parent;
  if (before) choose(conversation, before);
  else if (conversation.messages.length) choose(conversation, versions(conversation, message).at(-1));
}
