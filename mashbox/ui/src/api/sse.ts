/** One event of a `text/event-stream`. */
export interface ServerEvent {
  type: string;
  data: string;
}

/**
 * Takes the text of a stream apart as WHATWG HTML, section 9.2.6, has it, however the text is cut.
 * An event that the stream's end cuts off is dropped.
 */
export class EventParser {
  private rest = "";
  private afterReturn = false;
  private started = false;
  private type = "";
  private data: string[] = [];

  /** The events that are complete with this piece. */
  push(piece: string): ServerEvent[] {
    if (!this.started && piece) {
      this.started = true;
      if (piece.startsWith("\uFEFF")) piece = piece.slice(1);
    }
    if (this.afterReturn && piece.startsWith("\n")) piece = piece.slice(1);
    if (piece) this.afterReturn = piece.endsWith("\r");
    const lines = (this.rest + piece).split(/\r\n|\r|\n/);
    this.rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.line(line) ?? []);
  }

  private line(line: string): ServerEvent | undefined {
    if (line === "") return this.dispatch();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.data.push(value);
    if (field === "event") this.type = value;
    return undefined;
  }

  private dispatch(): ServerEvent | undefined {
    const { type, data } = this;
    this.type = "";
    this.data = [];
    return data.length ? { type: type || "message", data: data.join("\n") } : undefined;
  }
}

/** The events of a response's body, as they come. Leaving the loop cancels the body. */
export async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
