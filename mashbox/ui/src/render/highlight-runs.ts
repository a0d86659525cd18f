import hljs from "highlight.js/lib/core";
import { languageName } from "./language-names";
import { loadLanguage } from "./languages";

/** A piece of code and what it is (keyword, string, …); "" for plain. */
export type Run = readonly [text: string, scope: string];

/** Splits code into runs whose texts make up `code`, or null if the language is not known. */
export async function toRuns(code: string, language: string): Promise<Run[] | null> {
  const name = languageName(language);
  if (name === null) return null;
  await loadLanguage(name, (id, definition) => hljs.registerLanguage(id, definition));
  return readRuns(hljs.highlight(code, { language: name, ignoreIllegals: true }).value);
}

const piece = /<span class="(?:hljs-)?([a-z_-]*)[^"]*">|<\/span>|[^<]+/g;
const entities: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', "#x27": "'" };

/** Reads highlight.js's result: escaped text in spans whose first class names the scope. */
function readRuns(html: string): Run[] {
  const runs: [string, string][] = [];
  const scopes: string[] = [];
  for (const [part, scope] of html.matchAll(piece)) {
    if (scope !== undefined) scopes.push(scope.startsWith("language-") ? "" : scope);
    else if (part === "</span>") scopes.pop();
    else addText(runs, part.replace(/&(amp|lt|gt|quot|#x27);/g, (_, name: string) => entities[name]!), scopes.at(-1) ?? "");
  }
  return runs;
}

function addText(runs: [string, string][], text: string, scope: string): void {
  const last = runs.at(-1);
  if (last?.[1] === scope) last[0] += text;
  else runs.push([text, scope]);
}
