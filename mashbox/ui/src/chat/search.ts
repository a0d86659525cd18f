import { excerptOf } from "./excerpt";
import { fold } from "./fold";
import type { Conversation, Message } from "./types";

/** A conversation that holds every word of a query, with a piece of text around the first of them. */
export interface Hit {
  conversation: Conversation;
  /** The message to show; null when only the title holds the words. */
  message: Message | null;
  /** The piece, cut where words begin and end: odd places are hits. */
  excerpt: string[];
}

export function wordsOf(query: string): string[] {
  return [...new Set(fold(query).split(/\s+/).filter(Boolean))];
}

/** The text of conversations, folded once. Messages are added and replaced by id. */
export class SearchIndex {
  private readonly entries = new Map<string, { message: Message; folded: string }>();

  put(message: Message): void {
    const files = (message.files ?? []).map(({ name, text }) => `\n${name}\n${text}`).join("");
    this.entries.set(message.id, { message, folded: fold(message.text + files) });
  }

  drop(conversation: string): void {
    for (const [id, { message }] of this.entries) {
      if (message.conversation === conversation) this.entries.delete(id);
    }
  }

  /** Conversations with every word somewhere; those with all of them in the title first, then the newest. */
  search(query: string, conversations: readonly Conversation[]): Hit[] {
    const words = wordsOf(query);
    if (!words.length) return [];
    const entries = Map.groupBy(this.entries.values(), ({ message }) => message.conversation);
    const found = conversations.flatMap((conversation) => {
      const title = fold(conversation.title);
      const inTitle = words.every((word) => title.includes(word));
      const own = entries.get(conversation.id) ?? [];
      const whole = (word: string) =>
        title.includes(word) || own.some(({ folded }) => folded.includes(word));
      if (!inTitle && !words.every(whole)) return [];
      const best = bestOf(own, words);
      const hit: Hit = {
        conversation,
        message: best?.message ?? null,
        excerpt: best ? excerptOf(best.message, words) : [],
      };
      return [{ hit, inTitle }];
    });
    found.sort(
      (a, b) =>
        Number(b.inTitle) - Number(a.inTitle) || b.hit.conversation.updated - a.hit.conversation.updated,
    );
    return found.map(({ hit }) => hit);
  }
}

/** The entry with the most of the words; the first among equals. */
function bestOf<E extends { folded: string }>(entries: readonly E[], words: readonly string[]): E | null {
  let best: E | null = null;
  let most = 0;
  for (const entry of entries) {
    const count = words.filter((word) => entry.folded.includes(word)).length;
    if (count > most) [best, most] = [entry, count];
  }
  return best;
}
