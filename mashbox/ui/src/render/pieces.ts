import { limits } from "./limits";
import { markdown } from "./markdown";

/**
 * Cuts a long text of inline Markdown into pieces that read alone as they do in the whole, whatever comes behind: of
 * a paragraph that grows only the last one is drawn again.
 *
 * Where it is cut is told by what stands before the place alone, so that it is the same however the text came.
 */
export function piecesOf(text: string): string[] {
  const { cuts } = cutsOf(text);
  return [...cuts, text.length].map((end, index) => text.slice(index === 0 ? 0 : cuts[index - 1], end));
}

interface Cuts {
  /** All that the cuts were found by. */
  read: string;
  cuts: number[];
  /** How long the text must be for another cut. */
  next: number;
}

/** Texts that grow are asked for again and again. */
let recent: Cuts[] = [];
const remembered = 4;

function cutsOf(text: string): Cuts {
  if (text.length <= limits.piece) return { read: "", cuts: [], next: limits.piece };
  const known = recent.find(({ read }) => read !== "" && text.startsWith(read));
  const state: Cuts = known ? { ...known, cuts: [...known.cuts] } : { read: "", cuts: [], next: limits.piece };
  while (text.length > state.next) advance(state, text);
  recent = [state, ...recent.filter((one) => one !== known)].slice(0, remembered);
  return state;
}

/** Looks for one more cut before `next`, which is inside the text. */
function advance(state: Cuts, text: string): void {
  const start = state.cuts.at(-1) ?? 0;
  const from = Math.max(start + limits.piece / 2, state.next - limits.piece);
  const cut = findCut(text, start, from, state.next);
  state.read = text.slice(0, state.next + 1);
  if (cut !== null) state.cuts.push(cut);
  // What can't be cut so far may be further on, where what is open has ended.
  if (cut !== null) state.next = cut + limits.piece;
  else if (state.next - start < limits.uncut) state.next += limits.piece;
  else state.next = Infinity;
}

const tries = 12;

function findCut(text: string, start: number, from: number, to: number): number | null {
  const step = Math.ceil((to - from) / tries);
  for (let end = to; end > from; end -= step) {
    const place = lastPlace(text, Math.max(from, end - step), end);
    if (place !== null && isClosed(text.slice(start, place))) return place;
  }
  return null;
}

/** The last place in a part of the text, behind `from`, where one word ends and another begins. */
function lastPlace(text: string, from: number, to: number): number | null {
  for (let place = to; place > from; place--) {
    const around = text.slice(place - 2, place + 1);
    if (/^\S [^\s]$/.test(around) || /^[^\s\\][^\s\\]\n$/.test(around) || /^\S[。！？；，、：]\p{L}$/u.test(around)) return place;
  }
  return null;
}

/** Whether nothing in `piece` waits for an end that may come behind it. */
function isClosed(piece: string): boolean {
  const tokens = markdown.parseInline(piece, { references: {} })[0]?.children ?? [];
  const left = tokens.map(({ type, content }) => (type === "text" ? content : type === "softbreak" ? "\n" : "\u0001")).join("");
  if (/`|\]\(|~~+(?![~\s])|\*+(?![*\s])|(?<![\p{L}\p{N}])_+(?![_\s])/u.test(left)) return false;
  return isBalanced(left) && !mayBeFormula(piece, left) && !/<(?:sub|sup|kbd)>[^<]*$/i.test(piece) && !/:\/\/\S*$/.test(piece);
}

function isBalanced(text: string): boolean {
  let depth = 0;
  for (const [bracket] of text.matchAll(/[[\]]/g)) depth = bracket === "[" ? depth + 1 : Math.max(0, depth - 1);
  return depth === 0;
}

/** Whether a formula may have begun: it ends in so many characters, or is none. `left` is what is text so far. */
function mayBeFormula(piece: string, left: string): boolean {
  const far = limits.inlineFormula + 8;
  const tail = piece.slice(-far);
  const isOpen = (open: string, close: string) => tail.lastIndexOf(open) > tail.lastIndexOf(close);
  return left.slice(-far).includes("$") || isOpen("\\(", "\\)") || isOpen("\\[", "\\]");
}
