import { t } from "../texts";
import type { TextFile } from "./types";

export const MOST_BYTES = 1 << 20;

/** Read a dropped file as text. Raises an Error that says why it can't be taken. */
export async function readText(file: File): Promise<TextFile> {
  if (file.type.startsWith("image/")) throw new Error(t.fileImage(file.name));
  if (/^(audio|video)\//.test(file.type)) throw new Error(t.fileMedia(file.name));
  if (file.size > MOST_BYTES) throw new Error(t.fileTooLarge(file.name, MOST_BYTES >> 20));
  const buffer = await file.arrayBuffer().catch(() => null);
  if (!buffer) throw new Error(t.fileUnreadable(file.name));
  const text = decode(new Uint8Array(buffer));
  if (text === null) throw new Error(t.fileNotText(file.name));
  if (!text.trim()) throw new Error(t.fileEmpty(file.name));
  return { name: file.name, text };
}

/** Text of UTF-8 or, with its mark, UTF-16; null when it is neither. */
function decode(bytes: Uint8Array): string | null {
  const [first, second] = bytes;
  const encoding =
    first === 0xff && second === 0xfe ? "utf-16le" : first === 0xfe && second === 0xff ? "utf-16be" : "utf-8";
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}
