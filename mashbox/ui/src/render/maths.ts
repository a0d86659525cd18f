import { limits } from "./limits";
import { writeVariants } from "./math-letters";
import { sanitizeHtml } from "./sanitize";

type Katex = typeof import("katex").default;

let katex: Katex | null = null;
let loading: Promise<boolean> | null = null;

/** Formulas drawn lately, since a paragraph that grows is drawn again and again; null where KaTeX refused. */
const drawn = new Map<string, DocumentFragment | null>();
const keep = 500;

/** Fetches KaTeX once; true when it is there. A failed fetch (connection lost) is tried anew at the next call. */
export function loadMaths(): Promise<boolean> {
  loading ??= import("katex").then(
    (module) => {
      katex = module.default;
      return true;
    },
    () => {
      loading = null;
      return false;
    },
  );
  return loading;
}

export function mathsAreLoaded(): boolean {
  return katex !== null;
}

/** The formula as MathML, or null if KaTeX is not there yet, the TeX is wrong, or drawing it would take too long. */
export function drawMaths(tex: string, display: boolean): DocumentFragment | null {
  if (!katex || tex.length > limits.formula) return null;
  const key = (display ? "d" : "i") + tex;
  let fragment = drawn.get(key);
  if (fragment === undefined) {
    fragment = draw(katex, tex, display);
    if (drawn.size >= keep) drawn.delete(drawn.keys().next().value!);
    drawn.set(key, fragment);
  }
  return fragment && (fragment.cloneNode(true) as DocumentFragment);
}

function draw(library: Katex, tex: string, display: boolean): DocumentFragment | null {
  try {
    const html = library.renderToString(tex, {
      output: "mathml",
      displayMode: display,
      throwOnError: true,
      // No links, images, classes or styles out of TeX.
      trust: false,
      strict: "ignore",
      maxSize: 20,
      maxExpand: mostExpansions(tex),
    });
    // Taken over into this document once, so that each copy need not be.
    const maths = document.adoptNode(sanitizeHtml(html));
    writeVariants(maths);
    return maths;
  } catch {
    // A wrong formula, or one nested deeper than the stack: its source is shown.
    return null;
  }
}

/** Own macros can double at each step: what they may add up to is bounded by their length. */
function mostExpansions(tex: string): number {
  const defines = /\\(?:[a-z]*def|let|futurelet|[a-z]*command)(?![a-zA-Z])/.test(tex);
  return defines ? Math.min(1000, Math.floor(50_000 / tex.length)) : 1000;
}
