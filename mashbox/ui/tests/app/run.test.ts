// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keyAsked, locked, phase } from "../../src/api/server";
import { Run } from "../../src/app/run";
import type { Message } from "../../src/chat/types";
import { DONE, data, FINISH, streamed, streamedEvery, text, USAGE } from "../api/stream";
import { message } from "../helpers";

beforeEach(() => {
  vi.useFakeTimers();
  phase.value = "ready";
  locked.value = false;
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

type Answer = (signal: AbortSignal) => Response | Promise<Response>;

const error = (status: number, headers: Record<string, string> = {}) =>
  new Response(JSON.stringify({ error: { message: `Status ${status}.`, type: "x" } }), { status, headers });
const good: Answer = () => streamed([text("Hel"), text("lo"), FINISH, USAGE, DONE]);
/** As a browser has it: an abort breaks the body off. */
const endless: Answer = (signal) =>
  new Response(
    new ReadableStream({ start: (body) => signal.addEventListener("abort", () => body.error(signal.reason)) }),
  );
const lost: Answer = () => Promise.reject(new TypeError("failed"));

/** A run whose requests are answered in turn; health is `status`. */
function started(answers: Answer[], health = { status: "ok" }) {
  const asked = vi.fn(async (path: string, init?: RequestInit) => {
    if (path === "/health") return new Response(JSON.stringify({ waiting: 0, worker_restarts: 0, ...health }));
    if (path === "/v1/models") return new Response(JSON.stringify({ data: [] }));
    init?.signal?.throwIfAborted();
    return (answers.shift() ?? good)(init!.signal!);
  });
  vi.stubGlobal("fetch", asked);
  const saved: Message[] = [];
  const answer = message("answer", "question", 2, { role: "assistant", text: "" });
  const run = new Run(answer, { messages: [] }, (one) => void saved.push(one));
  const ended = run.perform();
  const posts = () => asked.mock.calls.filter(([path]) => path === "/v1/chat/completions").length;
  return { run, ended, saved, posts, health };
}

describe("Run", () => {
  it("gathers an answer and saves it", async () => {
    const { run, ended, saved } = started([good]);
    await ended;
    expect(run.message.value).toMatchObject({ text: "Hello", finish: "stop", figures: { answerTokens: 12 } });
    expect(saved.at(-1)).toEqual(run.message.value);
    expect(run.stage.value).toBe("done");
  });

  it("times thoughts", async () => {
    const thought = data({ choices: [{ index: 0, delta: { reasoning_content: "hm" } }] });
    const { run, ended } = started([() => streamed([thought, text("Yes"), FINISH, DONE])]);
    await ended;
    expect(run.message.value).toMatchObject({ thinking: "hm", thinkingMs: expect.any(Number), text: "Yes" });
  });

  it("tells how fast tokens come, three a piece, while they do", async () => {
    const paced = streamedEvery(50, Array.from({ length: 60 }, (_, index) => text("a b c ", 3 * index + 3)));
    const { run, ended } = started([() => paced]);
    await vi.advanceTimersByTimeAsync(2500);
    expect(run.rate.value).toBeGreaterThan(45);
    expect(run.rate.value).toBeLessThan(75);
    await vi.runAllTimersAsync();
    await ended;
    // As the server says at the end.
    expect(run.message.value.tokens).toBe(12);
  });

  it("counts a full line down, then asks again", async () => {
    const { run, ended, posts } = started([() => error(429, { "retry-after": "3" }), good]);
    await vi.advanceTimersByTimeAsync(1000);
    expect([run.stage.value, run.left.value, posts()]).toEqual(["full", 2, 1]);
    await vi.advanceTimersByTimeAsync(2000);
    await ended;
    expect([run.message.value.text, posts()]).toEqual(["Hello", 2]);
  });

  it("asks a full line again at once when the reader wants it", async () => {
    const { run, ended } = started([() => error(429, { "retry-after": "60" }), good]);
    await vi.advanceTimersByTimeAsync(10);
    run.tryNow();
    await ended;
    expect(run.message.value.text).toBe("Hello");
  });

  it("waits for a loading model and a lost connection, and sends nothing meanwhile", async () => {
    for (const first of [() => error(503), lost]) {
      const { ended, posts, health, run } = started([first, good], { status: "loading" });
      await vi.advanceTimersByTimeAsync(20_000);
      expect([posts(), ["loading", "lost"].includes(run.stage.value)]).toEqual([1, true]);
      health.status = "ok";
      phase.value = "ready";
      await ended;
      expect(run.message.value.text).toBe("Hello");
    }
  });

  it("never asks in a tight loop when health is right and requests fail", async () => {
    const { posts, run, ended } = started(Array.from({ length: 50 }, () => lost));
    await vi.advanceTimersByTimeAsync(10_000);
    expect(posts()).toBeLessThan(6);
    run.stop();
    await ended;
  });

  it("waits for a key", async () => {
    const { run, ended } = started([() => error(401), good]);
    await vi.advanceTimersByTimeAsync(10);
    expect([run.stage.value, keyAsked.value]).toEqual(["key", true]);
    locked.value = false;
    await ended;
    expect(run.message.value.text).toBe("Hello");
  });

  it("keeps what was written before a break, and does not begin again unasked", async () => {
    const broken = () => streamed([text("Hel"), data({ error: { message: "Died.", type: "server_error" } })]);
    for (const answer of [broken, () => streamed([text("Hel")])]) {
      const { run, ended, posts } = started([answer]);
      await ended;
      expect(run.message.value).toMatchObject({ text: "Hel", finish: "broken", error: expect.any(String) });
      expect(posts()).toBe(1);
    }
  });

  it("shows why a request is refused", async () => {
    const { run, ended } = started([() => error(400)]);
    await ended;
    expect(run.message.value).toMatchObject({ text: "", finish: "broken", error: "Status 400." });
  });

  it.each<[string, Answer]>([
    ["writing", endless],
    ["waiting in a full line", () => error(429)],
    ["waiting for the model", () => error(503)],
    ["waiting for a key", () => error(401)],
  ])("stops while %s", async (_, answer) => {
    const { run, ended } = started([answer], { status: "loading" });
    await vi.advanceTimersByTimeAsync(10);
    run.stop();
    await ended;
    expect(run.message.value.finish).toBe("stopped");
  });
});
