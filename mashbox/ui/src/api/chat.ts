import { t } from "../texts";
import type { ToolCall } from "../render/tools";
import { request } from "./client";
import { ApiError, errorIn } from "./errors";
import { eventsOf } from "./sse";

/** A message as the Chat API takes it. */
export interface ApiMessage {
  role: "system" | "user" | "assistant";
  content: string;
  reasoning_content?: string;
}

/** What is asked for; what is left out is the server's default. */
export interface ChatBody {
  messages: ApiMessage[];
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  max_tokens?: number;
  chat_template_kwargs?: { enable_thinking: boolean };
  /** The answer goes on with the last message, which is the assistant's. */
  continue_final_message?: true;
  prompt_cache_key?: string;
}

/** Counts and times of an answer, as the server measured them; times in milliseconds. */
export interface Figures {
  promptTokens: number;
  cachedTokens: number;
  answerTokens: number;
  queueMs: number;
  promptMs: number;
  perSecond: number | null;
}

export type ChatEvent =
  | { kind: "text" | "thinking"; text: string }
  | { kind: "call"; call: ToolCall }
  | { kind: "finish"; reason: string }
  /** Tokens of the answer so far. */
  | { kind: "count"; tokens: number }
  | { kind: "figures"; figures: Figures };

interface Chunk {
  choices?: {
    delta?: {
      content?: string | null;
      reasoning_content?: string | null;
      tool_calls?: { id?: string; function?: { name?: string; arguments?: string } }[];
    };
    finish_reason?: string | null;
  }[];
  usage?: { prompt_tokens: number; completion_tokens: number };
  timings?: { queue_ms: number; prompt_ms: number; cache_n: number; predicted_per_second?: number | null };
}

/** Stream one answer. Raises ApiError; one that breaks off without its end is `lost`. */
export async function* chat(body: ChatBody, signal: AbortSignal): AsyncGenerator<ChatEvent> {
  const response = await request("/v1/chat/completions", {
    method: "POST",
    signal,
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } }),
  });
  if (!response.body) throw new ApiError("lost", t.connectionLost);
  try {
    for await (const { data } of eventsOf(response.body)) {
      if (data === "[DONE]") return;
      yield* chatEvents(data);
    }
  } catch (error) {
    if (signal.aborted || error instanceof ApiError) throw error;
    throw new ApiError("lost", t.answerCutOff);
  }
  throw new ApiError("lost", t.answerCutOff);
}

/** What one `data:` line of a stream says. Raises ApiError for a failure. */
export function* chatEvents(data: string): Generator<ChatEvent> {
  const chunk = parse(data);
  const failure = errorIn(chunk);
  if (failure) throw failure;
  for (const { delta, finish_reason } of chunk.choices ?? []) {
    if (delta?.reasoning_content) yield { kind: "thinking", text: delta.reasoning_content };
    if (delta?.content) yield { kind: "text", text: delta.content };
    for (const call of delta?.tool_calls ?? []) {
      const { name = "", arguments: text = "" } = call.function ?? {};
      yield { kind: "call", call: { id: call.id ?? "", name, arguments: text } };
    }
    if (finish_reason) yield { kind: "finish", reason: finish_reason };
  }
  if (chunk.usage && chunk.timings) yield { kind: "figures", figures: figuresOf(chunk.usage, chunk.timings) };
  else if (chunk.usage) yield { kind: "count", tokens: chunk.usage.completion_tokens };
}

function parse(data: string): Chunk {
  try {
    return JSON.parse(data) as Chunk;
  } catch {
    throw new ApiError("fault", t.notUnderstood);
  }
}

function figuresOf(usage: NonNullable<Chunk["usage"]>, timings: NonNullable<Chunk["timings"]>): Figures {
  return {
    promptTokens: usage.prompt_tokens,
    cachedTokens: timings.cache_n,
    answerTokens: usage.completion_tokens,
    queueMs: timings.queue_ms,
    promptMs: timings.prompt_ms,
    perSecond: timings.predicted_per_second ?? null,
  };
}
