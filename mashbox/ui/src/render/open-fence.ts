import { isFence, type Group } from "./groups";

/** A code fence without an end so far: what comes is its content, and no rule need look at it, until a line could end it. */
export class OpenFence {
  private constructor(
    private readonly closer: RegExp,
    private lastLine: string,
  ) {}

  /** The fence that `source` consists of, or null if it is something else, or indented. */
  static at(groups: Group[], source: string): OpenFence | null {
    const token = groups[0]?.tokens[0];
    if (groups.length !== 1 || !token || !isFence(groups[0]!) || !source.startsWith(token.markup)) return null;
    const firstBreak = source.indexOf("\n");
    const content = source.slice(firstBreak + 1);
    const lastLine = content.slice(content.lastIndexOf("\n") + 1);
    // Before a line of content is whole, an opener with a bar in it may still be the head of a table.
    if (firstBreak < 0 || !content.includes("\n") || content.slice(0, content.length - blankEnd(lastLine).length) !== token.content) return null;
    return new OpenFence(new RegExp(`^ {0,3}[${token.markup[0]!}]{${token.markup.length},}[ \\t]*$`, "m"), lastLine);
  }

  /** What the content grows by, or null if the fence may have ended. */
  grow(piece: string): string | null {
    const lines = this.lastLine + piece;
    if (this.closer.test(lines)) return null;
    const shown = this.lastLine.length - blankEnd(this.lastLine).length;
    this.lastLine = lines.slice(lines.lastIndexOf("\n") + 1);
    return lines.slice(shown, lines.length - blankEnd(this.lastLine).length);
  }
}

/** markdown-it counts a last line of blanks only when it is whole or has text. */
function blankEnd(lastLine: string): string {
  return /^[ \t]*$/.test(lastLine) ? lastLine : "";
}
