// Ends a build: compresses what gains by it and lists the bundle's files. node pack.mjs FOLDER DIGEST
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const [folder, sources] = process.argv.slice(2);

// Vite's own notes are for tools; the server loads what stands in our list.
rmSync(join(folder, ".vite"), { recursive: true, force: true });

const files = readdirSync(folder, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => relative(folder, join(entry.parentPath, entry.name)).split(sep).join("/"))
  .filter((file) => file === "index.html" || file.startsWith("assets/"))
  .sort();

for (const file of files) {
  const body = readFileSync(join(folder, file));
  const packed = {
    br: brotliCompressSync(body, {
      params: {
        [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
        [constants.BROTLI_PARAM_SIZE_HINT]: body.length,
      },
    }),
    gz: gzipSync(body, { level: 9 }),
  };
  for (const [suffix, smaller] of Object.entries(packed)) {
    if (smaller.length < 0.9 * body.length) writeFileSync(join(folder, `${file}.${suffix}`), smaller);
  }
}

// Last, so that a folder with a list is whole.
writeFileSync(join(folder, "bundle.json"), JSON.stringify({ sources, files }, null, 1) + "\n");
