import { defineConfig } from "vite";

// A page of its own that draws answers without a server: `vite build -c bench/vite.config.ts`.
export default defineConfig({
  root: import.meta.dirname,
  base: "./",
  build: { outDir: "../dist-bench", emptyOutDir: true, assetsInlineLimit: 0, target: "es2022", modulePreload: false },
  worker: { format: "es" },
});
