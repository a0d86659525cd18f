import { t } from "../texts";
import { ApiError, errorOf } from "./errors";
import { key } from "./key";

/** A request to the page's own server. Raises ApiError; an abort passes as it is. */
export async function request(path: string, init: RequestInit = {}, withKey = key.value): Promise<Response> {
  const headers = new Headers(init.headers);
  if (withKey) headers.set("authorization", `Bearer ${withKey}`);
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError("lost", t.connectionLost);
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}
