import type { ChatBody } from "../api/chat";
import { phase, recommendedFor } from "../api/server";
import { chatBody } from "../chat/prompt";
import { titleOf } from "../chat/title";
import { choose, pathOf, pathTo } from "../chat/tree";
import { newId, type Message, type Settings, type TextFile } from "../chat/types";
import { t } from "../texts";
import { keepDraft } from "./drafts";
import { focusOn, MESSAGE_BOX } from "./view";
import { note, speak } from "./notices";
import { Run } from "./run";
import * as store from "./store";

/** What a reader can do to conversations and messages. */

/** What was asked to be opened last. */
let wanted = 0;

/** Open a conversation; null is the beginning of a new one. Focus is the caller's. */
export async function open(id: string | null): Promise<void> {
  const own = ++wanted;
  if (id !== null && !store.conversations.peek().has(id)) id = null;
  if (id !== null) {
    store.opening.value = true;
    await store.loadTree(id);
  }
  // Another one was asked for while this one was read.
  if (own !== wanted) return;
  store.openId.value = id;
  store.opening.value = false;
}

/** Send a message at the end of the open conversation, which is begun if none is open. */
export function send(text: string, files: readonly TextFile[]): void {
  const conversation = store.opened.peek() ?? store.begin();
  const parent = store.path.peek().at(-1)?.id ?? null;
  keepDraft(conversation.id, "");
  ask(conversation.id, parent, text, files);
}

/** Put another version beside a message of the reader's, and have it answered. */
export function edit(message: Message, text: string): void {
  ask(message.conversation, message.parent, text, message.files ?? []);
}

/** Have the message before this answer answered once more, beside it. */
export function retry(answer: Message): void {
  if (answer.parent !== null) answerTo(answer.conversation, answer.parent);
}

/** Go on with an answer that ended before its end. */
export function goOn(answer: Message): void {
  const { finish: _, error: __, ...begun } = answer;
  start(begun, { continue_final_message: true });
}

/** Walk to another version of a message. */
export function show(message: Message, version: string): void {
  const { conversation: id } = message;
  const conversation = store.conversations.peek().get(id);
  if (conversation) store.setChosen(id, choose(store.tree.peek(), conversation.chosen, version));
}

export function stop(): void {
  store.run.peek()?.stop();
}

function ask(id: string, parent: string | null, text: string, files: readonly TextFile[]): void {
  const message: Message = { id: newId(), conversation: id, parent, role: "user", text, created: Date.now() };
  if (files.length) message.files = [...files];
  add(message);
  const conversation = store.conversations.peek().get(id);
  if (conversation && !conversation.named && parent === null) {
    store.putConversation({ ...conversation, title: titleOf(message) });
  }
  answerTo(id, message.id);
}

function answerTo(id: string, parent: string): void {
  const tree = store.trees.peek().get(id);
  if (!tree) return;
  // Later than its parent, even in the same millisecond: the order of versions is that of time.
  const created = Math.max(Date.now(), (tree.get(parent)?.created ?? 0) + 1);
  start({ id: newId(), conversation: id, parent, role: "assistant", text: "", created });
}

/** Have an answer written, from its first word or from where it is. */
function start(answer: Message, more: Partial<ChatBody> = {}): void {
  const { conversation: id } = answer;
  const conversation = store.conversations.peek().get(id);
  if (!conversation) return;
  store.runs.peek().get(id)?.stop();
  add(answer);
  const path = pathTo(store.trees.peek().get(id)!, answer.id);
  const body = { ...chatBody(path, conversation.settings, id, recommendedFor(conversation.settings)), ...more };
  const run = new Run(answer, body, store.putMessage);
  store.runs.value = new Map(store.runs.peek()).set(id, run);
  if (phase.peek() === "ready") speak(t.answerBegun);
  void run.perform().then(() => finished(id, run));
}

/** Add a message where the path will run through it. */
function add(message: Message): void {
  store.putMessage(message);
  const { conversation: id } = message;
  const conversation = store.conversations.peek().get(id);
  const tree = store.trees.peek().get(id);
  if (!conversation || !tree) return;
  const chosen = choose(tree, conversation.chosen, message.id);
  store.putConversation({ ...conversation, chosen, updated: Date.now() });
}

function finished(id: string, run: Run): void {
  if (store.runs.peek().get(id) === run) {
    store.runs.value = new Map([...store.runs.peek()].filter(([, other]) => other !== run));
  }
  const { finish, error } = run.message.peek();
  if (store.openId.peek() === id) speak(error ?? (finish === "stopped" ? t.endings.stopped : t.answerDone));
}

export function saveSettings(settings: Settings): void {
  store.putConversation({ ...store.current.peek(), settings });
}

export function rename(id: string, title: string): void {
  const conversation = store.conversations.peek().get(id);
  const first = conversation && pathOf(store.trees.peek().get(id) ?? new Map(), conversation.chosen)[0];
  if (!conversation) return;
  // An empty title gives the conversation back its own.
  const named = title.trim() !== "";
  const own = first ? titleOf(first) : conversation.title;
  store.putConversation({ ...conversation, named, title: named ? title.trim() : own });
}

/** Hide a conversation, and remove it for good unless that is undone. */
export function remove(id: string): void {
  const conversation = store.conversations.peek().get(id);
  if (!conversation) return;
  store.runs.peek().get(id)?.stop();
  const wasOpen = store.openId.peek() === id;
  store.putConversation({ ...conversation, deleted: Date.now() });
  if (wasOpen) store.openId.value = null;
  focusOn(MESSAGE_BOX);
  const undo = () => {
    const { deleted: _, ...restored } = store.conversations.peek().get(id) ?? conversation;
    store.putConversation(restored);
    if (wasOpen) void open(id);
  };
  note(t.deleted(conversation.title || t.untitled), { label: t.undo, run: undo }, () => void store.purge(id));
}
