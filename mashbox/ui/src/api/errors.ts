import { t } from "../texts";

/**
 * What kind of failure it is, by what the page can do: `key` asks for one, `full` and `loading` wait and try
 * again, `lost` waits for the connection, `refused` and `fault` are shown.
 */
export type Trouble = "key" | "full" | "loading" | "lost" | "refused" | "fault";

/** A request that failed. `retryAfter` is in seconds, null when the server named none. */
export class ApiError extends Error {
  constructor(
    readonly trouble: Trouble,
    message: string,
    readonly retryAfter: number | null = null,
    readonly code: string | null = null,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

/** The failure that a response tells of. */
export async function errorOf(response: Response): Promise<ApiError> {
  const { message, code } = detailsOf(await response.json().catch(() => null));
  const after = Number.parseInt(response.headers.get("retry-after") ?? "", 10);
  const retryAfter = Number.isFinite(after) && after >= 0 ? after : null;
  return new ApiError(troubleOf(response.status), message ?? t.httpError(response.status), retryAfter, code);
}

/** The failure that an event in the middle of a stream tells of; null for any other event. */
export function errorIn(value: unknown): ApiError | null {
  const { message, code } = detailsOf(value);
  return message === null ? null : new ApiError("fault", message, null, code);
}

function troubleOf(status: number): Trouble {
  if (status === 401) return "key";
  if (status === 429 || status === 529) return "full";
  if (status === 503) return "loading";
  // A proxy or tunnel whose server is gone.
  if (status === 502 || status === 504) return "lost";
  return status < 500 ? "refused" : "fault";
}

function detailsOf(body: unknown): { message: string | null; code: string | null } {
  const error = (body as { error?: { message?: unknown; code?: unknown } } | null)?.error;
  return {
    message: typeof error?.message === "string" ? error.message : null,
    code: typeof error?.code === "string" ? error.code : null,
  };
}
