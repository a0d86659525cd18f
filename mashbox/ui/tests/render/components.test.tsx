// @vitest-environment jsdom
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it, vi } from "vitest";
import { Answer } from "../../src/render/answer";
import { Thinking } from "../../src/render/thinking";
import { pretty, ToolCalls } from "../../src/render/tools";

const page = document.body;

async function show(what: preact.ComponentChild) {
  await act(() => render(what, page));
}

afterEach(() => {
  render(null, page);
  vi.unstubAllGlobals();
});

describe("an answer", () => {
  it("shows its text at once and says whether more comes", async () => {
    await show(<Answer text="One **word**" streaming />);
    expect(page.querySelector(".md-answer")!.getAttribute("aria-busy")).toBe("true");
    expect(page.querySelector("strong")!.textContent).toBe("word");
    await show(<Answer text="Another" streaming={false} />);
    expect(page.querySelector(".md-answer")!.getAttribute("aria-busy")).toBe("false");
    expect(page.textContent).toBe("Another");
  });

  it("shows what comes in a later frame", async () => {
    await show(<Answer text="One" streaming />);
    await show(<Answer text="One and two" streaming={false} />);
    await vi.waitFor(() => expect(page.textContent).toBe("One and two"));
  });

  it("copies code without its last line break", async () => {
    const writeText = vi.fn(() => Promise.resolve());
    vi.stubGlobal("navigator", { clipboard: { writeText } });
    await show(<Answer text={"```sh\nls <a>\n\npwd\n```\n"} streaming={false} />);
    const button = page.querySelector<HTMLButtonElement>(".md-copy")!;
    button.click();
    await vi.waitFor(() => expect(button.textContent).toBe("Copied"));
    expect(writeText).toHaveBeenCalledWith("ls <a>\n\npwd");
  });
});

describe("thoughts", () => {
  it("are folded, say how long they took, and are drawn when opened", async () => {
    await show(<Thinking text="*Hm*" seconds={null} />);
    expect(page.querySelector("summary")!.textContent).toBe("Thinking …");
    await show(<Thinking text="*Hm* so" seconds={12.34} />);
    expect(page.querySelector("summary")!.textContent).toBe("Thought for 12.3 s");
    const details = page.querySelector("details")!;
    expect(details.open).toBe(false);
    expect(page.querySelector("em")).toBeNull();
    details.open = true;
    await act(() => void details.dispatchEvent(new Event("toggle")));
    expect(page.querySelector("em")!.textContent).toBe("Hm");
  });
});

describe("calls of tools", () => {
  it("show name, arguments and result", async () => {
    const calls = [
      { id: "1", name: "weather", arguments: '{"city":"<b>Oslo</b>","days":[1,2]}', result: '{"rain":true}' },
      { id: "2", name: "time", arguments: "{}" },
      { id: "3", name: "cut", arguments: '{"a": "unfin' },
    ];
    await show(<ToolCalls calls={calls} />);
    const blocks = [...page.querySelectorAll(".md-tool pre")].map((pre) => pre.textContent);
    expect(blocks).toEqual([
      '{\n  "city": "<b>Oslo</b>",\n  "days": [\n    1,\n    2\n  ]\n}',
      '{\n  "rain": true\n}',
      '{"a": "unfin',
    ]);
    expect([...page.querySelectorAll("summary code")].map((name) => name.textContent)).toEqual(["weather", "time", "cut"]);
    expect(page.querySelectorAll(".md-tool")[1]!.textContent).toContain("No arguments");
    expect(page.querySelector("b")).toBeNull();
  });

  it("keep text that is no object as it is", () => {
    expect(pretty("plain words")).toBe("plain words");
    expect(pretty("[]")).toBe("[]");
    expect(pretty("null")).toBe("null");
  });
});
