import { computed, effect, signal } from "@preact/signals";
import { request } from "./client";
import { ApiError } from "./errors";
import { key } from "./key";

/** The server as `/health` last told of it. */
export interface Health {
  status: "ok" | "loading";
  /** What is being done before it is ready, and the share of it that is done. */
  loading?: { stage: string; share: number };
  live_rows: number | null;
  waiting: number;
  worker_restarts: number;
}

/** The served model as `/v1/models` tells of it. */
export interface Model {
  id: string;
  max_model_len: number;
  slots?: number;
}

/** What `/v1/page` tells of the model; samplings are by the fields of a request. */
export interface PageState {
  title: string | null;
  thinking: "none" | "default-on" | "default-off" | "always" | null;
  plain_sampling: Record<string, number>;
  thinking_sampling: Record<string, number>;
}

/** `restarting` is loading of a server that was ready before. */
export type Phase = "unknown" | "ready" | "loading" | "restarting" | "offline";

export const phase = signal<Phase>("unknown");
/** When the phase began, in milliseconds since 1970. */
export const since = signal(Date.now());
export const health = signal<Health | null>(null);
export const model = signal<Model | null>(null);
export const page = signal<PageState | null>(null);
/** A key is asked for, and there is none or a wrong one. */
export const locked = signal(false);
/** Whether the reader is asked for it; they may leave that for later. */
export const keyAsked = signal(false);

/** Requests that run or wait for the server make it worth to look more often. */
export const eager = signal(0);

const QUICK_MS = 1000;
const SLOW_MS = 5000;
const TIMEOUT_MS = 8000;

const quick = computed(() => phase.value !== "ready" || eager.value > 0);
let timer: ReturnType<typeof setTimeout> | undefined;
let looking: Promise<void> | null = null;

/** Look at the server now and then, until the returned function is called. */
export function watchServer(): () => void {
  let watching = true;
  const round = async () => {
    clearTimeout(timer);
    if (!document.hidden) await look();
    clearTimeout(timer);
    if (watching) timer = setTimeout(round, quick.value ? QUICK_MS : SLOW_MS);
  };
  const now = () => void round();
  const stops = [
    effect(() => {
      if (quick.value) now();
    }),
    effect(() => {
      // With another key the answer may be another one.
      void key.value;
      void lookAtModel();
    }),
  ];
  const signals = [
    [document, "visibilitychange"],
    [window, "online"],
    [window, "offline"],
  ] as const;
  for (const [target, name] of signals) target.addEventListener(name, now);
  return () => {
    watching = false;
    clearTimeout(timer);
    for (const stop of stops) stop();
    for (const [target, name] of signals) target.removeEventListener(name, now);
  };
}

/** Ask for the server's health. Those who ask meanwhile get the same answer. */
export function look(): Promise<void> {
  looking ??= ask().finally(() => (looking = null));
  return looking;
}

async function ask(): Promise<void> {
  try {
    const response = await fetch("/health", {
      cache: "no-store",
      credentials: "omit",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const report = (await response.json()) as Health;
    if (report.status !== "ok" && report.status !== "loading") throw new TypeError("health");
    health.value = report;
    const before = phase.peek();
    const again = report.worker_restarts > 0 || before === "ready" || before === "restarting";
    enter(report.status === "ok" ? "ready" : again ? "restarting" : "loading");
    if (locked.peek()) return;
    if (!model.peek()) await lookAtModel();
  } catch {
    enter("offline");
  }
}

function enter(next: Phase): void {
  if (phase.peek() === next) return;
  // After a gap another server, with another model, may stand at the address.
  if (phase.peek() === "offline") void lookAtModel();
  since.value = Date.now();
  phase.value = next;
}

let lookingAtModel: { key: string; done: Promise<void> } | null = null;

/**
 * Ask which model is served. A missing or wrong key sets `locked`. Those who ask meanwhile with the same key get the
 * same answer: a second refusal would ask for a key again that the reader has just left for later.
 */
export function lookAtModel(): Promise<void> {
  const asked = key.peek();
  if (lookingAtModel?.key !== asked) {
    const done = askForModel(asked).finally(() => {
      if (lookingAtModel?.done === done) lookingAtModel = null;
    });
    lookingAtModel = { key: asked, done };
  }
  return lookingAtModel.done;
}

async function askForModel(asked: string): Promise<void> {
  try {
    const response = await request("/v1/models");
    const list = (await response.json()) as { data?: Model[] };
    model.value = list.data?.[0] ?? null;
    locked.value = false;
    keyAsked.value = false;
    await lookAtPage();
  } catch (error) {
    // A refusal of a key that was replaced meanwhile says nothing of the new one.
    if (error instanceof ApiError && error.trouble === "key" && key.peek() === asked) askKey();
  }
}

async function lookAtPage(): Promise<void> {
  try {
    page.value = (await (await request("/v1/page")).json()) as PageState;
  } catch {
    // All of it is worth having, none of it is needed.
    page.value = null;
  }
}

/** Ask the reader for a key: the server wants one. */
export function askKey(): void {
  locked.value = true;
  keyAsked.value = true;
}

/** Sampling that the model's makers recommend; empty when it is not known. */
export function recommendedFor({ thinking }: { thinking: boolean }): Record<string, number> {
  const known = page.value;
  return (thinking ? known?.thinking_sampling : known?.plain_sampling) ?? {};
}

/** Whether the model can be told to think or not; true when that is not known. */
export const hasThinkingSwitch = computed(() => !["none", "always"].includes(page.value?.thinking ?? ""));

/** Whether the server takes this key. Raises ApiError when that can't be told. */
export async function takesKey(candidate: string): Promise<boolean> {
  try {
    await request("/v1/models", {}, candidate);
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.trouble === "key") return false;
    throw error;
  }
}
