import createMarkdownIt, { type MarkdownIt, type StateInline } from "markdown-it";
import { limits } from "./limits";
import { maths } from "./markdown-maths";
import { safeHref } from "./safe-href";

/**
 * The one parser of answers: CommonMark, tables, strikethrough, bare addresses and maths.
 *
 * HTML is text, but for `<br>` and `<sub>`, `<sup>`, `<kbd>` around a few words, which models write for want of
 * a Markdown of their own. Addresses that are not http, https or mailto make no link.
 */
export const markdown: MarkdownIt = createMarkdown();

function createMarkdown(): MarkdownIt {
  const md = createMarkdownIt({ html: false, linkify: true, maxNesting: limits.nesting });
  md.validateLink = (url) => safeHref(url) !== null;
  // Whole addresses only: to models "main.py" and "node.rs" are files, not hosts.
  md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  md.linkify.add("ftp:", null).add("//", null);
  md.use(maths);
  md.inline.ruler.before("autolink", "few_tags", fewTags);
  return md;
}

const pair = /<(sub|sup|kbd)>([^<>\n]{1,200})<\/\1>/iy;
const lineBreak = /<br *\/?>/iy;

function fewTags(state: StateInline, silent: boolean): boolean {
  if (state.src.charCodeAt(state.pos) !== 0x3c /* < */) return false;
  lineBreak.lastIndex = pair.lastIndex = state.pos;
  const br = lineBreak.exec(state.src);
  if (br) {
    if (!silent) state.push("hardbreak", "br", 0);
    state.pos += br[0].length;
    return true;
  }
  const found = pair.exec(state.src);
  if (!found || state.pos + found[0].length > state.posMax) return false;
  if (!silent) {
    const tag = found[1]!.toLowerCase();
    state.push(`${tag}_open`, tag, 1);
    state.push("text", "", 0).content = found[2]!;
    state.push(`${tag}_close`, tag, -1);
  }
  state.pos += found[0].length;
  return true;
}
