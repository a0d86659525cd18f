import { PLAIN, type Conversation, type Message } from "../src/chat/types";

export function message(id: string, parent: string | null, created: number, more: Partial<Message> = {}): Message {
  const role = more.role ?? "user";
  return { id, conversation: "c", parent, role, text: `text of ${id}`, created, ...more };
}

export function conversation(id: string, more: Partial<Conversation> = {}): Conversation {
  const rest = { named: false, created: 1, updated: 1, settings: PLAIN, chosen: {}, draft: "" };
  return { id, title: `title of ${id}`, ...rest, ...more };
}

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
export function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A text of pieces that are likely to be trouble. */
export function anyText(next: () => number, pieces: readonly string[], most = 12): string {
  const count = Math.floor(next() * most);
  return Array.from({ length: count }, () => pieces[Math.floor(next() * pieces.length)]!).join("");
}
