// @vitest-environment jsdom
import { beforeEach, describe, expect, it, vi } from "vitest";

type Server = typeof import("../../src/api/server");

let server: Server;
let health: () => Response | Promise<Response>;
let withKey: boolean;
let page: object;

const report = (status: string, restarts = 0) => () =>
  new Response(JSON.stringify({ status, live_rows: 1, waiting: 2, worker_restarts: restarts }));
const dead = () => Promise.reject<Response>(new TypeError("failed"));

beforeEach(async () => {
  vi.resetModules();
  withKey = true;
  page = { title: "Model", thinking: "none", plain_sampling: { temperature: 0.7 }, thinking_sampling: {} };
  vi.stubGlobal("fetch", async (path: string) => {
    if (path === "/health") return health();
    if (!withKey) return new Response('{"error":{"message":"No key.","type":"x"}}', { status: 401 });
    return new Response(JSON.stringify(path === "/v1/page" ? page : { data: [{ id: "m", max_model_len: 9 }] }));
  });
  server = await import("../../src/api/server");
});

async function seen(answer: () => Response | Promise<Response>): Promise<string> {
  health = answer;
  await server.look();
  return server.phase.value;
}

describe("the server's phase", () => {
  it("is loading before the model was ever ready, then ready", async () => {
    expect(await seen(report("loading"))).toBe("loading");
    expect(await seen(report("ok"))).toBe("ready");
    expect(server.health.value).toMatchObject({ live_rows: 1, waiting: 2 });
    expect(server.model.value).toMatchObject({ id: "m" });
  });

  it("is restarting after that", async () => {
    await seen(report("ok"));
    expect(await seen(report("loading"))).toBe("restarting");
    expect(await seen(report("loading"))).toBe("restarting");
    expect(await seen(report("ok", 1))).toBe("ready");
  });

  it("is restarting when the server says that it did, to a page that is opened meanwhile", async () => {
    expect(await seen(report("loading", 1))).toBe("restarting");
  });

  it.each([
    ["nothing answers", dead],
    ["a proxy answers for it", () => new Response("<h1>Bad gateway</h1>", { status: 502 })],
    ["another server answers", () => new Response("{}")],
  ])("is offline when %s", async (_, answer) => {
    await seen(report("ok"));
    expect(await seen(answer)).toBe("offline");
    expect(await seen(report("ok"))).toBe("ready");
  });

  it("asks for the key once, not at every look", async () => {
    withKey = false;
    await seen(report("ok"));
    expect([server.locked.value, server.keyAsked.value]).toEqual([true, true]);
    server.keyAsked.value = false;
    await seen(report("ok"));
    expect([server.locked.value, server.keyAsked.value]).toEqual([true, false]);
  });

  it("knows no sampling from a server that tells none", async () => {
    await seen(report("loading"));
    expect(server.recommendedFor({ thinking: false })).toEqual({ temperature: 0.7 });
    await seen(report("ok"));
    expect(server.recommendedFor({ thinking: true })).toEqual({});
    expect(server.hasThinkingSwitch.value).toBe(false);
  });
});
