import { describe, expect, it } from "vitest";
import { EventParser, eventsOf, type ServerEvent } from "../../src/api/sse";

function parse(pieces: Iterable<string>): ServerEvent[] {
  const parser = new EventParser();
  return [...pieces].flatMap((piece) => parser.push(piece));
}

const STREAM =
  '\uFEFFdata: {"a":1}\n\n: keep-alive\n\nevent: error\r\ndata:first\r\ndata:  second\r\n\r\n' +
  "data\n\nid: 7\nretry: 10\nunknown: x\ndata: ü€😀\r\rdata: [DONE]\n\ndata: never ended\n";

const EVENTS: ServerEvent[] = [
  { type: "message", data: '{"a":1}' },
  { type: "error", data: "first\n second" },
  { type: "message", data: "" },
  { type: "message", data: "ü€😀" },
  { type: "message", data: "[DONE]" },
];

describe("EventParser", () => {
  it("reads fields, comments and all three line ends", () => {
    expect(parse([STREAM])).toEqual(EVENTS);
  });

  it("finds the same events however the text is cut in two or three", () => {
    for (let first = 0; first <= STREAM.length; first++) {
      for (let second = first; second <= STREAM.length; second += 7) {
        const pieces = [STREAM.slice(0, first), STREAM.slice(first, second), STREAM.slice(second)];
        expect(parse(pieces), `${first}, ${second}`).toEqual(EVENTS);
      }
    }
  });

  it("finds the same events one unit at a time", () => {
    expect(parse(STREAM.split(""))).toEqual(EVENTS);
  });

  it("gives an event as soon as its blank line is there", () => {
    const parser = new EventParser();
    expect(parser.push("data: x\r\n\r")).toEqual([{ type: "message", data: "x" }]);
    expect(parser.push("\ndata: y\n\n")).toEqual([{ type: "message", data: "y" }]);
  });
});

describe("eventsOf", () => {
  const bytes = new TextEncoder().encode(STREAM);

  function body(size: number): ReadableStream<Uint8Array> {
    return new ReadableStream({
      start(controller) {
        for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size));
        controller.close();
      },
    });
  }

  it.each([1, 2, 3, 5, 1000])("decodes characters that are cut between pieces of %i bytes", async (size) => {
    expect(await Array.fromAsync(eventsOf(body(size)))).toEqual(EVENTS);
  });

  it("cancels the body when its reader leaves", async () => {
    let cancelled = false;
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new TextEncoder().encode("data: x\n\n")),
      cancel: () => void (cancelled = true),
    });
    for await (const event of eventsOf(endless)) {
      expect(event.data).toBe("x");
      break;
    }
    expect(cancelled).toBe(true);
  });
});
