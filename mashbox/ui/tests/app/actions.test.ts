// @vitest-environment jsdom
import "fake-indexeddb/auto";
import { effect } from "@preact/signals";
import { IDBFactory } from "fake-indexeddb";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Message } from "../../src/chat/types";
import { DONE, FINISH, streamed, text } from "../api/stream";

type Store = typeof import("../../src/app/store");
type Actions = typeof import("../../src/app/actions");

let store: Store;
let actions: Actions;
let asked: { messages: { content: string }[] }[];

/** The page anew, over what the browser has kept. */
async function reload(): Promise<void> {
  vi.resetModules();
  store = await import("../../src/app/store");
  actions = await import("../../src/app/actions");
  await store.load();
}

beforeEach(async () => {
  globalThis.indexedDB = new IDBFactory();
  vi.stubGlobal("matchMedia", () => ({ matches: true, addEventListener: () => undefined }));
  vi.stubGlobal("BroadcastChannel", undefined);
  asked = [];
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    asked.push(JSON.parse(init.body as string));
    return streamed([text(`Answer ${asked.length}`), FINISH, DONE]);
  });
  await reload();
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const idle = () => vi.waitFor(() => expect(store.runs.value.size).toBe(0));
const shown = () => store.path.value.map((message) => message.text);

async function say(words: string): Promise<void> {
  actions.send(words, []);
  await idle();
}

describe("a conversation", () => {
  it("begins with its first message, which names it", async () => {
    await say("What is a violin?");
    expect(store.listed.value.map(({ title }) => title)).toEqual(["What is a violin?"]);
    expect(shown()).toEqual(["What is a violin?", "Answer 1"]);
  });

  it("sends all that was said", async () => {
    await say("One");
    await say("Two");
    expect(asked[1]!.messages.map(({ content }) => content)).toEqual(["One", "Answer 1", "Two"]);
  });

  it("is there after a reload, on the branch that was shown", async () => {
    await say("One");
    const id = store.openId.value;
    actions.retry(store.path.value[1]!);
    await idle();
    actions.show(store.path.value[1]!, [...store.tree.value.keys()][1]!);
    await vi.waitFor(async () => {
      await reload();
      await actions.open(id);
      expect(shown()).toEqual(["One", "Answer 1"]);
      expect(store.tree.value.size).toBe(3);
    });
  });

  it("branches where a message is edited, and keeps the old branch", async () => {
    await say("One");
    await say("Two");
    const second = store.path.value[2]!;
    actions.edit(second, "Another");
    await idle();
    expect(shown()).toEqual(["One", "Answer 1", "Another", "Answer 3"]);
    expect(asked[2]!.messages.map(({ content }) => content)).toEqual(["One", "Answer 1", "Another"]);
    actions.show(store.path.value[2]!, second.id);
    expect(shown()).toEqual(["One", "Answer 1", "Two", "Answer 2"]);
  });

  it("answers anew beside the old answer", async () => {
    await say("One");
    actions.retry(store.path.value[1]!);
    await idle();
    expect(shown()).toEqual(["One", "Answer 2"]);
    expect(store.tree.value.size).toBe(3);
  });

  it("goes on with an answer, in its place", async () => {
    await say("One");
    const [question, answer] = store.path.value as [Message, Message];
    store.putMessage({ ...answer, finish: "length", thinking: "hm" });
    actions.goOn(store.path.value[1]!);
    await idle();
    expect(shown()).toEqual(["One", "Answer 1Answer 2"]);
    expect(store.tree.value.size).toBe(2);
    expect(store.path.value[1]).toMatchObject({ id: answer.id, finish: "stop" });
    expect(asked[1]).toMatchObject({
      continue_final_message: true,
      messages: [{ content: question.text }, { role: "assistant", content: "Answer 1", reasoning_content: "hm" }],
    });
  });

  it("keeps a title that a person gave, and takes its own back for an empty one", async () => {
    await say("One");
    const id = store.openId.value!;
    actions.rename(id, " Numbers ");
    expect(store.opened.value!.title).toBe("Numbers");
    actions.edit(store.path.value[0]!, "Uno");
    await idle();
    expect(store.opened.value!.title).toBe("Numbers");
    actions.rename(id, "");
    expect(store.opened.value!.title).toBe("Uno");
  });
});

describe("opening", () => {
  it("shows what was asked for last, however long the other takes to read", async () => {
    await say("One");
    const id = store.openId.value!;
    await reload();
    const slow = actions.open(id);
    expect(store.opening.value).toBe(true);
    await actions.open(null);
    expect(store.opening.value).toBe(false);
    await slow;
    expect(store.openId.value).toBeNull();
  });

  it("never takes the shown conversation away to read it again", async () => {
    await say("One");
    const seen: number[] = [];
    const stop = effect(() => void seen.push(store.path.value.length));
    await store.reread();
    stop();
    expect(new Set(seen)).toEqual(new Set([2]));
  });

  it("loses nothing that is written while it is read again", async () => {
    await say("One");
    const reading = store.reread();
    await say("Two");
    await reading;
    expect(shown()).toEqual(["One", "Answer 1", "Two", "Answer 2"]);
    expect(store.listed.value).toHaveLength(1);
  });
});

describe("a page that is closed", () => {
  it("keeps what came of an answer", async () => {
    vi.stubGlobal("fetch", async (_: string, { signal }: RequestInit) => {
      const start = (body: ReadableStreamDefaultController) => {
        body.enqueue(new TextEncoder().encode(text("Half")));
        signal!.addEventListener("abort", () => body.error(signal!.reason));
      };
      return new Response(new ReadableStream({ start }));
    });
    actions.send("Tell me all", []);
    const id = store.openId.value;
    await vi.waitFor(() => expect(store.run.value!.message.value.text).toBe("Half"));
    dispatchEvent(new Event("pagehide"));
    await idle();
    await reload();
    await actions.open(id);
    expect(shown()).toEqual(["Tell me all", "Half"]);
    expect(store.path.value[1]).not.toHaveProperty("finish");
  });
});

describe("deleting", () => {
  it("can be undone, and is for good when it is not", async () => {
    const { notices } = await import("../../src/app/notices");
    await say("One");
    const id = store.openId.value!;
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    actions.remove(id);
    expect([store.listed.value.length, store.openId.value]).toEqual([0, null]);
    notices.value[0]!.action!.run();
    await vi.waitFor(() => expect(store.openId.value).toBe(id));
    expect(shown()).toEqual(["One", "Answer 1"]);
    actions.remove(id);
    vi.advanceTimersByTime(10_000);
    vi.useRealTimers();
    await vi.waitFor(async () => {
      await reload();
      expect(store.conversations.value.size).toBe(0);
    });
  });

  it("is finished by the next page when this one is closed meanwhile", async () => {
    await say("One");
    actions.remove(store.openId.value!);
    await vi.waitFor(async () => {
      await reload();
      expect(store.conversations.value.size).toBe(0);
    });
  });
});

describe("drafts", () => {
  it("stay with their conversation through any switch, and over a reload", async () => {
    const { draftOf, keepDraft, saveDrafts } = await import("../../src/app/drafts");
    await say("One");
    const id = store.openId.value!;
    keepDraft(id, "half a thought");
    await actions.open(null);
    keepDraft(store.fresh.value.id, "another");
    expect(draftOf(store.fresh.value)).toBe("another");
    expect(draftOf(store.conversations.value.get(id)!)).toBe("half a thought");
    saveDrafts();
    await vi.waitFor(async () => {
      await reload();
      expect(store.conversations.value.get(id)!.draft).toBe("half a thought");
    });
  });
});

describe("search", () => {
  it("finds what was said since", async () => {
    await say("One");
    const index = await store.searchIndex();
    await say("A marzipan potato");
    expect(index.search("marzipan answer", store.listed.value)).toHaveLength(1);
  });
});
