import { signal } from "@preact/signals";
import { chat, type ChatBody, type ChatEvent } from "../api/chat";
import { ApiError } from "../api/errors";
import { askKey, eager, locked, look, phase } from "../api/server";
import type { Finish, Message } from "../chat/types";
import { t } from "../texts";
import { Rate } from "./rate";
import { countDown, until } from "./waiting";

/** What a run is at: `full` counts down, `key`, `loading` and `lost` wait for their cause to pass. */
export type Stage = "asking" | "thinking" | "writing" | "full" | "key" | "loading" | "lost" | "done";

const DEFAULT_RETRY_S = 5;
const LONGEST_PAUSE_S = 15;
const HIDDEN_FLUSH_MS = 250;
const SAVE_MS = 2000;
const RATE_MS = 500;

/** One answer on its way: `message` grows, once a frame; `save` is called now and then, and at the end. */
export class Run {
  readonly stage = signal<Stage>("asking");
  readonly message;
  /** Seconds until a full line is tried again. */
  readonly left = signal(0);

  /** Tokens a second while the answer is written. */
  readonly rate = signal<number | null>(null);

  private readonly skip = signal(0);
  private readonly abort = new AbortController();
  private draft: Message;
  private thinkingBegan = 0;
  private flushing = false;
  private closed = false;
  private saved = Date.now();
  private readonly counts = new Rate();
  /** Whether anything of the answer came: one that goes on has words before that. */
  private hasOutput = false;
  /** Tokens that came. */
  private tokens = 0;
  private rated = 0;

  constructor(
    message: Message,
    private readonly body: ChatBody,
    private readonly save: (message: Message) => void,
  ) {
    this.draft = message;
    this.message = signal(message);
  }

  stop(): void {
    this.abort.abort();
  }

  /** The page is being closed: what came is kept, as not finished. */
  close(): void {
    this.closed = true;
    this.keep();
    this.abort.abort();
  }

  private keep(): void {
    this.saved = Date.now();
    this.save(this.draft);
  }

  /** Try a full line again without waiting for the countdown. */
  tryNow(): void {
    this.skip.value++;
  }

  /** Until the answer has ended in some way; never rejects. */
  async perform(): Promise<void> {
    eager.value++;
    try {
      await this.untilAnswered();
    } catch (error) {
      this.end(error);
    } finally {
      eager.value--;
      this.closeThoughts();
      this.draft = { ...this.draft, tokens: (this.draft.tokens ?? 0) + this.tokens };
      this.message.value = this.draft;
      this.stage.value = "done";
      this.save(this.draft);
    }
  }

  private async untilAnswered(): Promise<void> {
    for (let pause = 1; ; pause = Math.min(2 * pause, LONGEST_PAUSE_S)) {
      try {
        this.stage.value = "asking";
        for await (const event of chat(this.body, this.abort.signal)) this.take(event);
        return;
      } catch (error) {
        // What was begun is not begun again unasked: the reader has seen it.
        if (!(error instanceof ApiError) || this.hasOutput) throw error;
        await this.wait(error, pause);
      }
    }
  }

  /** Wait until the request may succeed. Raises the error when waiting is no help. */
  private async wait(error: ApiError, pause: number): Promise<void> {
    const { signal } = this.abort;
    switch (error.trouble) {
      case "full":
        this.stage.value = "full";
        return countDown(error.retryAfter ?? DEFAULT_RETRY_S, (left) => (this.left.value = left), this.skip, signal);
      case "key":
        askKey();
        this.stage.value = "key";
        return until(() => !locked.value, signal);
      case "loading":
      case "lost":
        this.stage.value = error.trouble;
        await look();
        // Health may be right while requests fail still: never try in a tight loop.
        await countDown(pause, () => undefined, this.skip, signal);
        return until(() => phase.value === "ready", signal);
      default:
        throw error;
    }
  }

  private take(event: ChatEvent): void {
    if (event.kind === "count") {
      this.tokens = event.tokens;
      return this.counts.add(Date.now(), event.tokens);
    }
    if (event.kind !== "thinking") this.closeThoughts();
    if (event.kind !== "finish" && event.kind !== "figures") this.hasOutput = true;
    const { draft } = this;
    switch (event.kind) {
      case "thinking":
        this.thinkingBegan ||= Date.now();
        this.draft = { ...draft, thinking: (draft.thinking ?? "") + event.text };
        break;
      case "text":
        this.draft = { ...draft, text: draft.text + event.text };
        break;
      case "call":
        this.draft = { ...draft, calls: [...(draft.calls ?? []), event.call] };
        break;
      case "finish":
        this.draft = { ...draft, finish: finishOf(event.reason) };
        break;
      case "figures":
        this.draft = { ...draft, figures: event.figures };
        this.tokens = event.figures.answerTokens;
    }
    this.flushSoon();
  }

  private closeThoughts(): void {
    if (!this.thinkingBegan) return;
    this.draft = { ...this.draft, thinkingMs: (this.draft.thinkingMs ?? 0) + Date.now() - this.thinkingBegan };
    this.thinkingBegan = 0;
  }

  private flushSoon(): void {
    if (this.flushing) return;
    this.flushing = true;
    const flush = () => {
      this.flushing = false;
      if (this.stage.peek() === "done") return;
      this.message.value = this.draft;
      if (this.hasOutput) this.stage.value = this.thinkingBegan ? "thinking" : "writing";
      this.measure();
      if (Date.now() - this.saved > SAVE_MS) this.keep();
    };
    // A hidden page draws no frames.
    if (document.hidden) setTimeout(flush, HIDDEN_FLUSH_MS);
    else requestAnimationFrame(flush);
  }

  private measure(): void {
    const now = Date.now();
    if (now - this.rated < RATE_MS) return;
    this.rated = now;
    this.rate.value = this.counts.at(now);
  }

  private end(error: unknown): void {
    if (this.abort.signal.aborted) {
      if (!this.closed) this.draft = { ...this.draft, finish: "stopped" };
      return;
    }
    const known = error instanceof ApiError;
    if (known && (error.trouble === "lost" || error.trouble === "fault")) void look();
    this.draft = { ...this.draft, finish: "broken", error: known ? error.message : t.notUnderstood };
    if (!known) console.error(error);
  }
}

function finishOf(reason: string): Finish {
  return reason === "length" || reason === "tool_calls" ? reason : "stop";
}
