import { batch, computed, signal } from "@preact/signals";
import { Database } from "../chat/db";
import { SearchIndex } from "../chat/search";
import { type Chosen, pathOf, placesOf, treeOf, type Tree, withMessage } from "../chat/tree";
import { PLAIN, newId, type Conversation, type Message, type Preset } from "../chat/types";
import type { Run } from "./run";

/** What the page shows, in signals; what the browser keeps follows it. */

let db: Database;

export const conversations = signal<ReadonlyMap<string, Conversation>>(new Map());
/** Messages of the conversations that were opened since the page was loaded. */
export const trees = signal<ReadonlyMap<string, Tree>>(new Map());
/** Answers on their way, by conversation. */
export const runs = signal<ReadonlyMap<string, Run>>(new Map());
export const presets = signal<readonly Preset[]>([]);
export const openId = signal<string | null>(null);
/** A conversation's messages are being read; it is shown once they are here. */
export const opening = signal(false);
/** What is written before a conversation is begun, and how it will be asked. */
export const fresh = signal<Conversation>(blank());
export const kept = signal(true);

const NO_MESSAGES: Tree = new Map();

export const opened = computed(() => (openId.value && conversations.value.get(openId.value)) || null);
/** The open conversation, or the one that would be begun. */
export const current = computed(() => opened.value ?? fresh.value);
export const tree = computed(() => (openId.value && trees.value.get(openId.value)) || NO_MESSAGES);
export const path = computed(() => (opened.value ? pathOf(tree.value, opened.value.chosen) : []));
/** Where each message stands among its versions. */
export const places = computed(() => placesOf(tree.value));
export const run = computed(() => (openId.value && runs.value.get(openId.value)) || null);

/** Those that are not deleted, the newest first. */
export const listed = computed(() =>
  [...conversations.value.values()].filter((one) => !one.deleted).sort((a, b) => b.updated - a.updated),
);

export function blank(): Conversation {
  const now = Date.now();
  return { id: newId(), title: "", named: false, created: now, updated: now, settings: PLAIN, chosen: {}, draft: "" };
}

/** Open the browser's storage and read what is in it. */
export async function load(): Promise<void> {
  db = await Database.open();
  kept.value = db.keeps;
  await reread();
  for (const { id, deleted } of conversations.peek().values()) if (deleted) await purge(id);
}

/** Read again what another tab may have changed. Conversations with an answer on its way stay. */
export async function reread(): Promise<void> {
  const id = openId.peek();
  const before = changes;
  const [heads, all, messages] = await Promise.all([db.conversations(), db.presets(), id ? db.messages(id) : []]);
  if (!db.keeps) return;
  // What was changed here, or opened, meanwhile is not in what was read.
  if (changes !== before || openId.peek() !== id) return reread();
  const live = [...runs.peek().keys()];
  const map = new Map(heads.map((one) => [one.id, one]));
  for (const id of live) {
    const own = conversations.peek().get(id);
    if (own) map.set(id, own);
  }
  const read = new Map(id ? [[id, treeOf(messages)]] : []);
  for (const own of live) read.set(own, trees.peek().get(own) ?? NO_MESSAGES);
  index = null;
  // At once, so that the open conversation never goes and comes back.
  batch(() => {
    conversations.value = map;
    presets.value = all;
    trees.value = read;
  });
}

/** The messages of a conversation, read once. */
export async function loadTree(id: string): Promise<Tree> {
  const known = trees.peek().get(id);
  if (known) return known;
  const read = treeOf(await db.messages(id));
  trees.value = new Map(trees.peek()).set(id, trees.peek().get(id) ?? read);
  return trees.peek().get(id)!;
}

export function putConversation(conversation: Conversation): void {
  if (!conversations.peek().has(conversation.id) && conversation.id === fresh.peek().id) {
    fresh.value = conversation;
    return;
  }
  conversations.value = new Map(conversations.peek()).set(conversation.id, conversation);
  keep(db.putConversation(conversation));
}

/** Make the fresh conversation one of the list, and open it. */
export function begin(): Conversation {
  const now = Date.now();
  const begun = { ...fresh.peek(), created: now, updated: now };
  conversations.value = new Map(conversations.peek()).set(begun.id, begun);
  trees.value = new Map(trees.peek()).set(begun.id, NO_MESSAGES);
  fresh.value = blank();
  openId.value = begun.id;
  keep(db.putConversation(begun));
  return begun;
}

export function putMessage(message: Message): void {
  const id = message.conversation;
  trees.value = new Map(trees.peek()).set(id, withMessage(trees.peek().get(id) ?? NO_MESSAGES, message));
  index?.put(message);
  // A conversation that was purged meanwhile gets no message back.
  if (conversations.peek().has(id)) keep(db.putMessage(message));
}

export function setChosen(id: string, chosen: Chosen): void {
  const conversation = conversations.peek().get(id);
  if (conversation) putConversation({ ...conversation, chosen });
}

export async function addWhole(conversation: Conversation, messages: readonly Message[]): Promise<void> {
  changes++;
  await db.putWhole(conversation, messages);
  conversations.value = new Map(conversations.peek()).set(conversation.id, conversation);
  trees.value = new Map(trees.peek()).set(conversation.id, treeOf(messages));
  for (const message of messages) index?.put(message);
  announce();
}

/** Remove a conversation for good. */
export async function purge(id: string): Promise<void> {
  const without = <V>(map: ReadonlyMap<string, V>) => new Map([...map].filter(([own]) => own !== id));
  conversations.value = without(conversations.peek());
  trees.value = without(trees.peek());
  index?.drop(id);
  changes++;
  await db.remove(id);
  announce();
}

export function putPreset(preset: Preset): void {
  presets.value = [...presets.peek().filter(({ id }) => id !== preset.id), preset];
  keep(db.putPreset(preset));
}

export function removePreset(id: string): void {
  presets.value = presets.peek().filter((preset) => preset.id !== id);
  keep(db.removePreset(id));
}

let index: SearchIndex | null = null;

/** The index of all messages, made when it is first asked for. */
export async function searchIndex(): Promise<SearchIndex> {
  if (index) return index;
  const made = new SearchIndex();
  for (const message of await db.messages()) made.put(message);
  for (const one of trees.peek().values()) for (const message of one.values()) made.put(message);
  index = made;
  return made;
}

const tabs = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("mashbox");
if (tabs) tabs.onmessage = () => void reread();

/** How often this tab changed what is kept. */
let changes = 0;

function keep(writing: Promise<void>): void {
  changes++;
  writing.then(announce, (error: unknown) => {
    console.error(error);
    kept.value = false;
  });
}

if (typeof window !== "undefined") {
  addEventListener("pagehide", () => {
    for (const run of runs.peek().values()) run.close();
  });
}

/** Tell the other tabs that something changed. */
function announce(): void {
  tabs?.postMessage("changed");
}
