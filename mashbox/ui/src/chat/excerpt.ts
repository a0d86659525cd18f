import { markdown } from "../render/markdown";
import { fold } from "./fold";
import type { Message } from "./types";

/** Characters on either side of a hit that are looked at, and those that are shown. */
const AROUND = 400;
const BEFORE = 32;
const AFTER = 96;

/** The text around the first of `words` in a message, as its reader sees it; every hit in it stands at an odd place. */
export function excerptOf({ role, text, files }: Pick<Message, "role" | "text" | "files">, words: readonly string[]): string[] {
  const texts = [text, ...(files ?? []).flatMap((file) => [file.name, file.text])];
  for (const [index, one] of texts.entries()) {
    const first = firstOf(fold(one), words);
    if (first < 0) continue;
    const near = around(one, first);
    const seen = role === "assistant" && index === 0 ? plainText(near.opening + near.text) : near.text;
    // What is found in a mark alone, such as a link's address, is shown as it is written.
    const isSeen = firstOf(fold(seen), words) >= 0;
    return marked((isSeen ? seen : near.text).replace(/\s+/g, " ").trim(), words, near);
  }
  return [];
}

function firstOf(folded: string, words: readonly string[]): number {
  const places = words.map((word) => folded.indexOf(word)).filter((place) => place >= 0);
  return places.length > 0 ? Math.min(...places) : -1;
}

interface Near {
  text: string;
  /** Whether there is more of the text on either side. */
  before: boolean;
  after: boolean;
  /** What opens a code block that it begins in. */
  opening: string;
}

/** Whole lines around a place; of very long ones, whole words. */
function around(text: string, place: number): Near {
  const [least, most] = [Math.max(0, place - AROUND), Math.min(text.length, place + AROUND)];
  const lead = text.slice(least, place);
  const start = least === 0 ? 0 : least + (endOf(lead, /^.*?\n/s) ?? endOf(lead, /^\S*\s/) ?? 0);
  const rest = text.slice(place, most);
  const last = Math.max(rest.lastIndexOf("\n"), rest.lastIndexOf(" "));
  const end = most === text.length || last <= 0 ? most : place + last;
  const fences = text.slice(0, start).match(/^ {0,3}(?:```|~~~)/gm)?.length ?? 0;
  return { text: text.slice(start, end), before: start > 0, after: end < text.length, opening: fences % 2 ? "```\n" : "" };
}

function endOf(text: string, pattern: RegExp): number | null {
  return pattern.exec(text)?.[0].length ?? null;
}

/** What a reader sees of Markdown: no marks, no addresses. */
export function plainText(text: string): string {
  const parts: string[] = [];
  for (const token of markdown.parse(text, {})) {
    if (token.type === "inline") parts.push(...(token.children ?? []).map(shownOf), " ");
    else if (token.nesting === 0) parts.push(token.content, " ");
  }
  return parts.join("");
}

function shownOf({ type, content }: { type: string; content: string }): string {
  if (type === "softbreak" || type === "hardbreak") return " ";
  // Of a table whose head is further up, bars are left.
  return type === "text" ? content.replace(/(?:\|\s*:?-{2,}:?\s*)+\||\|/g, " ") : content;
}

function marked(text: string, words: readonly string[], more: Near): string[] {
  const first = firstOf(fold(text), words);
  const start = first <= BEFORE ? 0 : text.lastIndexOf(" ", first - BEFORE + 12) + 1 || first - BEFORE;
  const end = Math.min(text.length, Math.max(0, first) + AFTER);
  const piece = text.slice(start, end);
  const any = new RegExp(words.map(escape).sort((a, b) => b.length - a.length).join("|"), "g");
  const parts: string[] = [];
  let done = 0;
  for (const match of fold(piece).matchAll(any)) {
    parts.push(piece.slice(done, match.index), piece.slice(match.index, match.index + match[0].length));
    done = match.index + match[0].length;
  }
  parts.push(piece.slice(done) + (end < text.length || more.after ? "…" : ""));
  if (start > 0 || more.before) parts[0] = `…${parts[0]}`;
  return parts;
}

function escape(word: string): string {
  return word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
