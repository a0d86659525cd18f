import type { Conversation } from "../chat/types";
import { conversations, fresh, putConversation } from "./store";

/** Messages that are written and not sent: kept at once, and in the browser a moment later. */

const SAVE_MS = 400;

const drafts = new Map<string, string>();
let timer: ReturnType<typeof setTimeout> | undefined;

export function draftOf({ id, draft }: Conversation): string {
  return drafts.get(id) ?? draft;
}

export function keepDraft(id: string, text: string): void {
  drafts.set(id, text);
  clearTimeout(timer);
  timer = setTimeout(saveDrafts, SAVE_MS);
}

/** Write what is not yet written. */
export function saveDrafts(): void {
  clearTimeout(timer);
  for (const [id, draft] of drafts) {
    const begun = fresh.peek().id === id ? fresh.peek() : conversations.peek().get(id);
    if (begun && begun.draft !== draft) putConversation({ ...begun, draft });
  }
  drafts.clear();
}

// A draft younger than the pause is kept too.
if (typeof window !== "undefined") addEventListener("pagehide", saveDrafts);
