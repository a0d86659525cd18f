import { afterEach, describe, expect, it, vi } from "vitest";
import { chat, chatEvents, type ChatEvent } from "../../src/api/chat";
import { ApiError } from "../../src/api/errors";
import { setKey, forgetKey } from "../../src/api/key";
import { data, DONE, FINISH, streamed, text, USAGE } from "./stream";

const BODY = { messages: [{ role: "user" as const, content: "Hi" }] };

afterEach(() => {
  vi.unstubAllGlobals();
  forgetKey();
});

function answering(answer: () => Response | Promise<Response>) {
  const asked = vi.fn<typeof fetch>(async () => answer());
  vi.stubGlobal("fetch", asked);
  return asked;
}

async function failure(): Promise<ApiError> {
  const error = await Array.fromAsync(chat(BODY, new AbortController().signal)).catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(ApiError);
  return error as ApiError;
}

describe("chat", () => {
  it("gives text, thoughts, calls, the end and the figures", async () => {
    const call = { index: 0, id: "call_1", type: "function", function: { name: "f", arguments: "{}" } };
    const delta = (value: object) => data({ choices: [{ index: 0, delta: value, finish_reason: null }] });
    const counted = data({ choices: [{ index: 0, delta: { content: "!" } }], usage: { prompt_tokens: 34, completion_tokens: 11 } });
    const stream = [delta({ role: "assistant", content: "" }), delta({ reasoning_content: "hm" }), text("Hello"), counted];
    answering(() => streamed([...stream, delta({ tool_calls: [call] }), FINISH, USAGE, DONE]));
    const events: ChatEvent[] = await Array.fromAsync(chat(BODY, new AbortController().signal));
    expect(events).toEqual([
      { kind: "thinking", text: "hm" },
      { kind: "text", text: "Hello" },
      { kind: "text", text: "!" },
      { kind: "count", tokens: 11 },
      { kind: "call", call: { id: "call_1", name: "f", arguments: "{}" } },
      { kind: "finish", reason: "stop" },
      {
        kind: "figures",
        figures: { promptTokens: 34, cachedTokens: 30, answerTokens: 12, queueMs: 5, promptMs: 20, perSecond: 40 },
      },
    ]);
  });

  it("asks for a stream with its usage, and sends the key", async () => {
    setKey("secret", false);
    const asked = answering(() => streamed([DONE]));
    await Array.fromAsync(chat(BODY, new AbortController().signal));
    const [path, init] = asked.mock.calls[0]!;
    expect(path).toBe("/v1/chat/completions");
    expect(JSON.parse(init!.body as string)).toEqual({ ...BODY, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } });
    expect((init!.headers as Headers).get("authorization")).toBe("Bearer secret");
  });

  it.each([
    [400, "refused"],
    [401, "key"],
    [404, "refused"],
    [429, "full"],
    [500, "fault"],
    [502, "lost"],
    [503, "loading"],
    [529, "full"],
  ])("tells what %i is about: %s", async (status, trouble) => {
    const headers = { "retry-after": "7" };
    const body = { error: { message: "Why.", type: "x", code: "c" } };
    answering(() => new Response(JSON.stringify(body), { status, headers }));
    expect(await failure()).toMatchObject({ trouble, message: "Why.", retryAfter: 7, code: "c" });
  });

  it("has words for an answer that is not the server's own", async () => {
    answering(() => new Response("<h1>Bad gateway</h1>", { status: 502 }));
    expect(await failure()).toMatchObject({ message: expect.stringContaining("502"), retryAfter: null });
  });

  it("calls a server that can't be reached lost", async () => {
    answering(() => Promise.reject(new TypeError("failed")));
    expect((await failure()).trouble).toBe("lost");
  });

  it("calls a stream without its end lost", async () => {
    answering(() => streamed([text("Hel")]));
    expect((await failure()).trouble).toBe("lost");
  });

  it("raises what an event in the stream tells of", async () => {
    answering(() => streamed([text("Hel"), data({ error: { message: "The worker died.", type: "server_error" } })]));
    expect(await failure()).toMatchObject({ trouble: "fault", message: "The worker died." });
  });
});

describe("chatEvents", () => {
  it("refuses what is no JSON", () => {
    expect(() => [...chatEvents("{")]).toThrow(ApiError);
  });
});
