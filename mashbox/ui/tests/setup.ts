import { afterAll } from "vitest";

// Files share a worker, with its page and modules: each leaves the page empty.
afterAll(() => {
  if (typeof document !== "undefined") document.body.replaceChildren();
});
