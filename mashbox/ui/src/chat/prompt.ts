import type { ApiMessage, ChatBody } from "../api/chat";
import type { Message, Settings, TextFile } from "./types";

/** Values of a request's sampling fields. */
export type Sampling = Readonly<Record<string, number>>;

/**
 * The request for an answer to the last message of `path`. What the settings leave open is as the model's makers
 * recommend, and the server's own where they say nothing.
 */
export function chatBody(
  path: readonly Message[],
  settings: Settings,
  conversation: string,
  recommended: Sampling = {},
): ChatBody {
  const messages = apiMessages(path, settings.system);
  const body: ChatBody = { ...recommended, messages, prompt_cache_key: conversation };
  if (settings.temperature !== null) body.temperature = settings.temperature;
  if (settings.topP !== null) body.top_p = settings.topP;
  if (settings.maxTokens !== null) body.max_tokens = settings.maxTokens;
  if (settings.thinking) body.chat_template_kwargs = { enable_thinking: true };
  return body;
}

/** What the model is shown. Answers that broke off before their first word are left out, all but the thoughts of the last. */
export function apiMessages(path: readonly Message[], system: string): ApiMessage[] {
  const messages: ApiMessage[] = system.trim() ? [{ role: "system", content: system }] : [];
  for (const message of path) {
    const content = contentOf(message);
    if (message.role === "assistant" && !content && !(message.thinking && message === path.at(-1))) continue;
    const thoughts = message.thinking ? { reasoning_content: message.thinking } : {};
    messages.push({ role: message.role, content, ...thoughts });
  }
  return messages;
}

/** A message's text with its files before it, each in a fence that its text can't close. */
export function contentOf(message: Pick<Message, "text" | "files">): string {
  return [...(message.files ?? []).map(fileBlock), message.text].filter(Boolean).join("\n\n");
}

function fileBlock({ name, text }: TextFile): string {
  const longest = Math.max(2, ...Array.from(text.matchAll(/`+/g), (run) => run[0].length));
  const fence = "`".repeat(longest + 1);
  return `${name}\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
}
