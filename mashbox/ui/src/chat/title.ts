import type { Message } from "./types";

const LONGEST = 60;

/** A title from a first message: its first line with words, without marks, cut between words. */
export function titleOf(message: Pick<Message, "text" | "files">): string {
  const line = message.text.split("\n").map(plain).find(Boolean) ?? message.files?.[0]?.name ?? "";
  if (line.length <= LONGEST) return line;
  const cut = line.slice(0, LONGEST);
  const space = cut.lastIndexOf(" ");
  return `${(space > LONGEST / 2 ? cut.slice(0, space) : cut).trimEnd()}…`;
}

function plain(line: string): string {
  return line.replace(/^[#>*\-\s`]+/, "").replace(/[`*]+/g, "").trim();
}
