import type { Figures } from "../api/chat";
import type { ToolCall } from "../render/tools";

/** How the answers of a conversation are asked for; null is the model's or the server's own value. */
export interface Settings {
  system: string;
  temperature: number | null;
  topP: number | null;
  maxTokens: number | null;
  thinking: boolean;
}

export const PLAIN: Settings = {
  system: "",
  temperature: null,
  topP: null,
  maxTokens: null,
  thinking: false,
};

/** Settings under a name. */
export interface Preset {
  id: string;
  name: string;
  settings: Settings;
}

/** A text file that a message carries. */
export interface TextFile {
  name: string;
  text: string;
}

/** How an answer ended: `stopped` by the reader, `broken` by a fault, else the server's own word. */
export type Finish = "stop" | "length" | "tool_calls" | "stopped" | "broken";

/** A node of a conversation's tree. Times are milliseconds since 1970. */
export interface Message {
  id: string;
  conversation: string;
  parent: string | null;
  role: "user" | "assistant";
  text: string;
  created: number;
  files?: TextFile[];
  thinking?: string;
  thinkingMs?: number;
  calls?: ToolCall[];
  /** Absent in an answer that is still written, or whose page was closed meanwhile. */
  finish?: Finish;
  error?: string;
  /** Of the last part, of an answer that went on. */
  figures?: Figures;
  /** Of all parts. */
  tokens?: number;
}

/** All of a conversation but its messages. */
export interface Conversation {
  id: string;
  title: string;
  /** Whether a person gave the title; others follow the first message. */
  named: boolean;
  created: number;
  updated: number;
  settings: Settings;
  /** The child that is shown, by the parent's id; `ROOT` for the first message. */
  chosen: Record<string, string>;
  draft: string;
  deleted?: number;
}

export const ROOT = "root";

export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
