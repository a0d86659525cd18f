import createPurifier, { type Config, type DOMPurify } from "dompurify";
import { policy } from "./trusted";

/**
 * Attributes that may stay on elements of an answer. No `style`, `class`, `id`, `name`, `src`: none
 * can load, restyle, or pass for an element of the page.
 */
const attributes = ["href", "target", "rel", "title"];

/** What the inline content of a block stands in. */
const holders = ["div", "p", "h3", "h4", "h5", "h6", "td", "th"];

const tags = ["a", "br", "code", "em", "kbd", "s", "span", "strong", "sub", "sup", ...holders];

/** What KaTeX writes with output "mathml", less what can load (mglyph), link or style. */
const mathTags = [
  "math", "semantics", "menclose", "mfrac", "mi", "mn", "mo", "mover", "mpadded", "mphantom", "mroot", "mrow",
  "mspace", "msqrt", "mstyle", "msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover",
];

const mathAttributes = [
  "accent", "accentunder", "columnalign", "columnlines", "columnspacing", "depth", "display", "displaystyle", "fence",
  "height", "largeop", "linebreak", "linethickness", "lspace", "mathbackground", "mathcolor", "mathsize", "mathvariant",
  "maxsize", "minsize", "notation", "rowlines", "rowspacing", "rspace", "scriptlevel", "separator", "stretchy",
  "voffset", "width", "xmlns",
];

const config: Config = {
  ALLOWED_TAGS: ["#text", ...tags, ...mathTags],
  ALLOWED_ATTR: [...attributes, ...mathAttributes],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  // All but href: what is not listed here must look like an address.
  ADD_URI_SAFE_ATTR: [...attributes.filter((name) => name !== "href"), ...mathAttributes],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  ALLOW_SELF_CLOSE_IN_ATTR: false,
  // The TeX source that KaTeX adds would show as text if only its element went.
  FORBID_CONTENTS: ["annotation", "annotation-xml", "script", "style", "template", "title", "noscript"],
};

/** Makes a purifier on first use: it needs a window. */
function purifier(how: Config): () => DOMPurify {
  let made: DOMPurify | null = null;
  return () => (made ??= createWith({ ...config, ...how }));
}

function createWith(settings: Config): DOMPurify {
  const purify = createPurifier(window);
  purify.setConfig(policy ? { ...settings, TRUSTED_TYPES_POLICY: policy } : settings);
  return purify;
}

const inPlace = purifier({ IN_PLACE: true });
const toFragment = purifier({ RETURN_DOM_FRAGMENT: true });

let workshop: Document | null = null;
let made = 0;

/**
 * An empty element whose children, once sanitised, can be moved to the page. It stands in a document of its own: each
 * iterator that DOMPurify leaves behind in one hears of every node that is taken out of it, until it is collected.
 */
export function makeHolder(): Element {
  if (made++ % 16 === 0) workshop = document.implementation.createHTMLDocument("");
  return workshop!.createElement("div");
}

/** Removes whatever is not allowed from `element`, which is not yet part of the page. */
export function sanitizeInPlace(element: Element): void {
  inPlace().sanitize(element);
}

/** The allowed part of HTML that a library wrote. */
export function sanitizeHtml(html: string): DocumentFragment {
  return toFragment().sanitize(html) as unknown as DocumentFragment;
}
