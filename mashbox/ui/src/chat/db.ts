import { openDB, type DBSchema, type IDBPDatabase } from "idb";
import type { Conversation, Message, Preset } from "./types";

interface Schema extends DBSchema {
  conversations: { key: string; value: Conversation };
  messages: { key: string; value: Message; indexes: { conversation: string } };
  presets: { key: string; value: Preset };
}

/** What the browser keeps. Where it keeps nothing, reads find nothing and writes go nowhere. */
export class Database {
  private constructor(private readonly db: IDBPDatabase<Schema> | null) {}

  static async open(name = "mashbox"): Promise<Database> {
    try {
      const db = await openDB<Schema>(name, 1, {
        upgrade(fresh) {
          fresh.createObjectStore("conversations", { keyPath: "id" });
          const messages = fresh.createObjectStore("messages", { keyPath: "id" });
          messages.createIndex("conversation", "conversation");
          fresh.createObjectStore("presets", { keyPath: "id" });
        },
        // Another tab brings a newer layout: make way for it.
        blocking: (_old, _new, event) => (event.target as IDBDatabase).close(),
      });
      return new Database(db);
    } catch {
      return new Database(null);
    }
  }

  get keeps(): boolean {
    return this.db !== null;
  }

  async conversations(): Promise<Conversation[]> {
    return (await this.db?.getAll("conversations")) ?? [];
  }

  async conversation(id: string): Promise<Conversation | undefined> {
    return this.db?.get("conversations", id);
  }

  async messages(conversation?: string): Promise<Message[]> {
    if (!this.db) return [];
    if (conversation === undefined) return this.db.getAll("messages");
    return this.db.getAllFromIndex("messages", "conversation", conversation);
  }

  async putConversation(conversation: Conversation): Promise<void> {
    await this.put("conversations", conversation);
  }

  async putMessage(message: Message): Promise<void> {
    await this.put("messages", message);
  }

  private async put<K extends "conversations" | "messages">(store: K, value: Schema[K]["value"]): Promise<void> {
    const change = this.db?.transaction(store, "readwrite");
    if (!change) return;
    void change.store.put(value);
    // Not when the put has told of its success: a page that is being closed does not live to hear it.
    change.commit();
    await change.done;
  }

  /** A conversation with its messages: all or nothing. */
  async putWhole(conversation: Conversation, messages: readonly Message[]): Promise<void> {
    const change = this.db?.transaction(["conversations", "messages"], "readwrite");
    if (!change) return;
    await change.objectStore("conversations").put(conversation);
    for (const message of messages) await change.objectStore("messages").put(message);
    await change.done;
  }

  async remove(conversation: string): Promise<void> {
    const change = this.db?.transaction(["conversations", "messages"], "readwrite");
    if (!change) return;
    await change.objectStore("conversations").delete(conversation);
    const messages = change.objectStore("messages");
    for (const key of await messages.index("conversation").getAllKeys(conversation)) await messages.delete(key);
    await change.done;
  }

  async presets(): Promise<Preset[]> {
    return (await this.db?.getAll("presets")) ?? [];
  }

  async putPreset(preset: Preset): Promise<void> {
    await this.db?.put("presets", preset);
  }

  async removePreset(id: string): Promise<void> {
    await this.db?.delete("presets", id);
  }

  close(): void {
    this.db?.close();
  }
}
