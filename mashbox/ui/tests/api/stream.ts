/** Streams as the server writes them. */

export const data = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;

/** A piece of text, and how many tokens there are with it. */
export const text = (content: string, tokens?: number) =>
  data({
    id: "x",
    choices: [{ index: 0, delta: { content }, finish_reason: null }],
    ...(tokens !== undefined && { usage: { prompt_tokens: 34, completion_tokens: tokens } }),
  });

const timings = { queue_ms: 5, prompt_ms: 20, cache_n: 30, prompt_n: 4, predicted_per_second: 40 };

export const FINISH = data({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }], timings });
export const USAGE = data({ choices: [], usage: { prompt_tokens: 34, completion_tokens: 12, total_tokens: 46 }, timings });
export const DONE = "data: [DONE]\n\n";

export function streamed(pieces: readonly string[]): Response {
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const piece of pieces) controller.enqueue(encoder.encode(piece));
      controller.close();
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

/** The same with a pause of `ms` before each piece; it goes on to the end of an answer. */
export function streamedEvery(ms: number, pieces: readonly string[]): Response {
  const encoder = new TextEncoder();
  const left = [...pieces, FINISH, USAGE, DONE];
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      await new Promise((resolve) => setTimeout(resolve, ms));
      const piece = left.shift();
      if (piece === undefined) controller.close();
      else controller.enqueue(encoder.encode(piece));
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}
