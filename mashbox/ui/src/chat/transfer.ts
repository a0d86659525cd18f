import { t } from "../texts";
import { PLAIN, type Conversation, type Message, type Settings, type TextFile, newId } from "./types";

/** A conversation with all its messages, branches included. */
export interface Whole {
  conversation: Conversation;
  messages: Message[];
}

const FORMAT = "mashbox-conversations";
const VERSION = 1;

export function toJson(wholes: readonly Whole[]): string {
  return `${JSON.stringify({ format: FORMAT, version: VERSION, conversations: wholes }, null, 1)}\n`;
}

/**
 * Conversations from a file that `toJson` wrote, under new ids. What other fields a file holds is left out.
 * Raises an Error that says what is wrong with it.
 */
export function fromJson(text: string): Whole[] {
  const file = parsed(text);
  if (file["format"] !== FORMAT || !Array.isArray(file["conversations"])) throw new Error(t.importForeign);
  if (typeof file["version"] !== "number" || file["version"] > VERSION) throw new Error(t.importNewer);
  return file["conversations"].map((whole, index) => {
    try {
      return renewed(wholeOf(asRecord(whole)));
    } catch {
      throw new Error(t.importBroken(index + 1));
    }
  });
}

/** The same under ids that nothing else has. */
export function renewed({ conversation, messages }: Whole): Whole {
  const id = newId();
  const ids = new Map(messages.map((message) => [message.id, newId()]));
  const renew = (old: string) => ids.get(old) ?? old;
  const chosen = Object.entries(conversation.chosen).map(([parent, child]) => [renew(parent), renew(child)]);
  return {
    conversation: { ...conversation, id, chosen: Object.fromEntries(chosen) as Record<string, string> },
    messages: messages.map((message) => ({
      ...message,
      id: renew(message.id),
      conversation: id,
      parent: message.parent === null ? null : renew(message.parent),
    })),
  };
}

type Fields = Record<string, unknown>;

function parsed(text: string): Fields {
  try {
    return asRecord(JSON.parse(text));
  } catch {
    throw new Error(t.importForeign);
  }
}

function wholeOf({ conversation, messages }: Fields): Whole {
  const head = conversationOf(asRecord(conversation));
  const all = asArray(messages).map((message) => messageOf(asRecord(message), head.id));
  const earlier = new Set<string | null>([null]);
  for (const { id, parent } of all) {
    // A parent comes before its children, so that there are no rings and no orphans.
    if (!earlier.has(parent) || earlier.has(id)) throw new TypeError("parent");
    earlier.add(id);
  }
  return { conversation: head, messages: all };
}

function conversationOf(fields: Fields): Conversation {
  const chosen = Object.entries(asRecord(fields["chosen"] ?? {})).map(([from, to]) => [from, asText(to)]);
  return {
    id: asText(fields["id"]),
    title: asText(fields["title"]),
    named: fields["named"] === true,
    created: asNumber(fields["created"]),
    updated: asNumber(fields["updated"]),
    settings: settingsOf(asRecord(fields["settings"] ?? {})),
    chosen: Object.fromEntries(chosen) as Record<string, string>,
    draft: typeof fields["draft"] === "string" ? fields["draft"] : "",
  };
}

export function settingsOf(fields: Fields): Settings {
  const number = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : null);
  return {
    ...PLAIN,
    system: typeof fields["system"] === "string" ? fields["system"] : "",
    temperature: number(fields["temperature"]),
    topP: number(fields["topP"]),
    maxTokens: number(fields["maxTokens"]),
    thinking: fields["thinking"] === true,
  };
}

function messageOf(fields: Fields, conversation: string): Message {
  const { role, parent, finish } = fields;
  if (role !== "user" && role !== "assistant") throw new TypeError("role");
  const message: Message = {
    id: asText(fields["id"]),
    conversation,
    parent: parent === null ? null : asText(parent),
    role,
    text: asText(fields["text"]),
    created: asNumber(fields["created"]),
  };
  if (typeof fields["thinking"] === "string") message.thinking = fields["thinking"];
  if (typeof fields["thinkingMs"] === "number") message.thinkingMs = fields["thinkingMs"];
  if (fields["files"] !== undefined) message.files = asArray(fields["files"]).map(fileOf);
  if (finish === "stop" || finish === "length" || finish === "stopped" || finish === "broken") {
    message.finish = finish;
  }
  return message;
}

function fileOf(value: unknown): TextFile {
  const fields = asRecord(value);
  return { name: asText(fields["name"]), text: asText(fields["text"]) };
}

function asRecord(value: unknown): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new TypeError("object");
  return value as Fields;
}

function asArray(value: unknown): unknown[] {
  if (!Array.isArray(value)) throw new TypeError("list");
  return value;
}

function asText(value: unknown): string {
  if (typeof value !== "string") throw new TypeError("text");
  return value;
}

function asNumber(value: unknown): number {
  if (typeof value !== "number" || !Number.isFinite(value)) throw new TypeError("number");
  return value;
}
