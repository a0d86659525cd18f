import "fake-indexeddb/auto";
import { beforeEach, describe, expect, it } from "vitest";
import { IDBFactory } from "fake-indexeddb";
import { Database } from "../../src/chat/db";
import { conversation, message } from "../helpers";

beforeEach(() => {
  globalThis.indexedDB = new IDBFactory();
});

describe("Database", () => {
  it("keeps conversations and messages over a reload", async () => {
    const first = await Database.open();
    await first.putConversation(conversation("one"));
    await first.putMessage(message("m1", null, 1, { conversation: "one" }));
    await first.putMessage(message("m2", null, 1, { conversation: "two" }));
    first.close();
    const second = await Database.open();
    expect(await second.conversations()).toEqual([conversation("one")]);
    expect((await second.messages("one")).map(({ id }) => id)).toEqual(["m1"]);
    expect(await second.messages()).toHaveLength(2);
  });

  it("removes a conversation with its messages only", async () => {
    const db = await Database.open();
    await db.putWhole(conversation("one"), [message("m1", null, 1, { conversation: "one" })]);
    await db.putWhole(conversation("two"), [message("m2", null, 1, { conversation: "two" })]);
    await db.remove("one");
    expect((await db.conversations()).map(({ id }) => id)).toEqual(["two"]);
    expect((await db.messages()).map(({ id }) => id)).toEqual(["m2"]);
  });

  it("does without a browser that keeps anything", async () => {
    globalThis.indexedDB = undefined as unknown as IDBFactory;
    const db = await Database.open();
    expect(db.keeps).toBe(false);
    await db.putConversation(conversation("one"));
    expect(await db.conversations()).toEqual([]);
  });
});
