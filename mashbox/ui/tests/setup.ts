import { afterAll, vi } from "vitest";

// Files share a worker, with its page and packages: each has our modules anew, and leaves the page empty.
vi.resetModules();

afterAll(() => {
  if (typeof document !== "undefined") document.body.replaceChildren();
});
