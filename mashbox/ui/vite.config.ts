/// <reference types="vitest/config" />
import { defineConfig } from "vite";

// The server that the live page talks to; it answers only to its own host and origin, so the proxy speaks as such.
const server = process.env["MASHBOX_URL"] ?? "http://127.0.0.1:8000";
const toServer = {
  target: server,
  changeOrigin: true,
  headers: { origin: server },
};
const proxy = Object.fromEntries(
  ["/v1", "/health", "/metrics", "/openapi.json"].map((path) => [path, toServer]),
);

export default defineConfig({
  build: {
    outDir: "dist",
    assetsDir: "assets",
    manifest: true,
    target: "es2022",
    // Files of their own: the page's Content-Security-Policy allows no data: address for scripts and styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // What the packages in the bundle ask for wherever they are handed on.
    license: { fileName: "licenses.md" },
  },
  // Modules, so that the worker fetches each language when it is first needed.
  worker: { format: "es" },
  server: { proxy, strictPort: true },
  preview: { proxy, strictPort: true },
  test: {
    include: ["tests/**/*.test.{ts,tsx}"],
    setupFiles: ["tests/setup.ts"],
    environment: "node",
    // Each file in a worker of its own would load all packages, and jsdom, again.
    isolate: false,
    pool: "threads",
    testTimeout: 60_000,
  },
});
