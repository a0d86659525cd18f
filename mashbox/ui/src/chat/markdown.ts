import { t } from "../texts";
import { contentOf } from "./prompt";
import type { Whole } from "./transfer";
import { pathOf, treeOf } from "./tree";
import { PLAIN, type Conversation, type Message, newId } from "./types";

/** Before each turn stands such a line, which Markdown does not show; a backslash marks one in a turn's text. */
const TURN = /^<!-- mashbox: (system|user|thoughts|assistant) -->$/;
const NEARLY_TURN = /^\\*<!-- mashbox: (system|user|thoughts|assistant) -->$/gm;

/** The thoughts before an answer are a turn of their own. */
type Role = "system" | "thoughts" | Message["role"];

export interface MarkdownOptions {
  thoughts?: boolean;
}

/** The branch that is shown, as a document to read: figures and other branches are left out, thoughts unless asked for. */
export function toMarkdown({ conversation, messages }: Whole, { thoughts = false }: MarkdownOptions = {}): string {
  const turns: string[] = [];
  const { system } = conversation.settings;
  if (system) turns.push(turn("system", system));
  for (const message of pathOf(treeOf(messages), conversation.chosen)) {
    if (thoughts && message.thinking) turns.push(turn("thoughts", message.thinking));
    turns.push(turn(message.role, contentOf(message)));
  }
  return [`# ${conversation.title}\n`, ...turns].join("\n");
}

function turn(role: Role, text: string): string {
  const name = { system: t.systemPrompt, user: t.you, thoughts: t.thoughts, assistant: t.assistant }[role];
  return `<!-- mashbox: ${role} -->\n\n## ${name}\n\n${text.replace(NEARLY_TURN, "\\$&")}\n`;
}

/** A conversation from a document that `toMarkdown` wrote. Raises an Error for another one. */
export function fromMarkdown(text: string, now: number): Whole {
  const [head = "", ...turns] = split(text);
  if (!turns.length) throw new Error(t.importForeign);
  const conversation: Conversation = {
    id: newId(),
    title: /^# (.*)$/m.exec(head)?.[1] ?? "",
    named: true,
    created: now,
    updated: now,
    settings: PLAIN,
    chosen: {},
    draft: "",
  };
  const messages: Message[] = [];
  let thinking: string | undefined;
  for (const [role, body] of turns as [Role, string][]) {
    if (role === "system") {
      conversation.settings = { ...PLAIN, system: body };
    } else if (role === "thoughts") {
      thinking = body;
    } else {
      messages.push({
        id: newId(),
        conversation: conversation.id,
        parent: messages.at(-1)?.id ?? null,
        role,
        text: body,
        created: now + messages.length,
        finish: "stop",
        ...(thinking !== undefined && role === "assistant" && { thinking }),
      });
      thinking = undefined;
    }
  }
  return { conversation, messages };
}

/** What stands before the first turn, then each turn's role and text. */
function split(text: string): [string, ...[string, string][]] {
  const head: string[] = [];
  const turns: { role: string; lines: string[] }[] = [];
  for (const line of text.split("\n")) {
    const role = TURN.exec(line)?.[1];
    if (role) turns.push({ role, lines: [] });
    else (turns.at(-1)?.lines ?? head).push(line);
  }
  return [head.join("\n"), ...turns.map(({ role, lines }) => [role, bodyOf(lines)] as [string, string])];
}

/** Without the blank line, the heading and the blank line that come before a turn's text, and the line end after it. */
function bodyOf(lines: readonly string[]): string {
  return lines.join("\n").replace(/^\n## .*\n\n/, "").replace(/\n+$/, "").replace(NEARLY_TURN, (line) => line.slice(1));
}
