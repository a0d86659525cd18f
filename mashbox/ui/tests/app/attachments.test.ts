// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { t } from "../../src/texts";

type Attachments = typeof import("../../src/app/attachments");
type Notices = typeof import("../../src/app/notices");

let attachments: Attachments;
let notices: Notices;

/** The page anew, in the same tab. */
async function reload(): Promise<void> {
  vi.resetModules();
  attachments = await import("../../src/app/attachments");
  notices = await import("../../src/app/notices");
}

beforeEach(async () => {
  vi.stubGlobal("matchMedia", () => ({ matches: true, addEventListener: () => undefined }));
  sessionStorage.clear();
  await reload();
});

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

const file = (name: string, text: string) => new File([text], name, { type: "text/plain" });
const names = () => attachments.attached.value.map(({ name }) => name);

describe("attached files", () => {
  it("last through a reload, until they are sent", async () => {
    await attachments.attach([file("a.txt", "one"), file("b.txt", "two")]);
    await reload();
    attachments.detach(0);
    await reload();
    expect(attachments.takeAttached()).toEqual([{ name: "b.txt", text: "two" }]);
    await reload();
    expect(names()).toEqual([]);
  });

  it("are taken where the browser has no room to keep them, and that is said", async () => {
    vi.spyOn(Storage.prototype, "setItem").mockImplementation(() => {
      throw new DOMException("full", "QuotaExceededError");
    });
    await attachments.attach([file("a.txt", "one")]);
    expect(names()).toEqual(["a.txt"]);
    expect(notices.notices.value.map(({ text }) => text)).toEqual([t.filesNotKept]);
    await reload();
    expect(names()).toEqual([]);
  });

  it.each(["", "{", "{}", '[1, null, {"name": "a"}]'])("are none where %j was kept", async (kept) => {
    sessionStorage.setItem("mashbox.attached", kept);
    await reload();
    expect(names()).toEqual([]);
  });
});
