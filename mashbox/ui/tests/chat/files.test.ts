import { describe, expect, it } from "vitest";
import { MOST_BYTES, readText } from "../../src/chat/files";
import { t } from "../../src/texts";

const file = (content: BlobPart, name = "a.txt", type = "") => new File([content], name, { type });

describe("readText", () => {
  it.each([
    ["UTF-8", new TextEncoder().encode("grün\n")],
    ["UTF-8 with its mark", new TextEncoder().encode("\uFEFFgrün\n")],
    ["UTF-16, little end first", new Uint8Array([0xff, 0xfe, ...utf16("grün\n")])],
  ])("reads %s", async (_, bytes) => {
    expect(await readText(file(bytes))).toEqual({ name: "a.txt", text: "grün\n" });
  });

  it.each([
    ["an image", file("x", "a.png", "image/png"), t.fileImage("a.png")],
    ["a drawing in text", file("<svg/>", "a.svg", "image/svg+xml"), t.fileImage("a.svg")],
    ["sound", file("x", "a.mp3", "audio/mpeg"), t.fileMedia("a.mp3")],
    ["bytes that are no text", file(new Uint8Array([0x25, 0x50, 0xff, 0x00])), t.fileNotText("a.txt")],
    ["text with zero bytes", file("a\0b"), t.fileNotText("a.txt")],
    ["an empty file", file(" \n"), t.fileEmpty("a.txt")],
    ["a large file", file(new Uint8Array(MOST_BYTES + 1).fill(65)), t.fileTooLarge("a.txt", 1)],
  ])("refuses %s with the reason", async (_, given, reason) => {
    await expect(readText(given)).rejects.toThrow(reason);
  });
});

function utf16(text: string): number[] {
  return text.split("").flatMap((unit) => [unit.charCodeAt(0) & 255, unit.charCodeAt(0) >> 8]);
}
