import { toMarkdown, fromMarkdown, type MarkdownOptions } from "../chat/markdown";
import { fromJson, toJson, type Whole } from "../chat/transfer";
import { t } from "../texts";
import { open } from "./actions";
import { note } from "./notices";
import * as store from "./store";

/** Conversations to files and back. */

export async function exportJson(ids: readonly string[]): Promise<void> {
  const wholes = await Promise.all(ids.map(wholeOf));
  const name = wholes.length === 1 ? fileName(wholes[0]!) : t.product;
  save(`${name}.json`, "application/json", toJson(wholes));
}

export async function exportMarkdown(id: string, options?: MarkdownOptions): Promise<void> {
  const whole = await wholeOf(id);
  save(`${fileName(whole)}.md`, "text/markdown", toMarkdown(whole, options));
}

/** Add what a file holds to the list; says what is wrong with one that can't be read. */
export async function importFile(file: File): Promise<void> {
  try {
    const text = await file.text();
    const wholes = /^\s*\{/.test(text) ? fromJson(text) : [fromMarkdown(text, Date.now())];
    for (const { conversation, messages } of wholes) await store.addWhole(conversation, messages);
    note(t.imported(wholes.length));
    if (wholes.length === 1) await open(wholes[0]!.conversation.id);
  } catch (error) {
    note((error as Error).message);
  }
}

async function wholeOf(id: string): Promise<Whole> {
  const messages = [...(await store.loadTree(id)).values()];
  return { conversation: store.conversations.peek().get(id)!, messages };
}

function fileName({ conversation }: Whole): string {
  const plain = conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "");
  return plain.slice(0, 60) || t.product;
}

function save(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
