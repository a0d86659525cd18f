const protocols: ReadonlySet<string> = new Set(["http:", "https:", "mailto:"]);

/** The address as a browser would read it, or null if it is relative or not http, https or mailto. */
export function safeHref(address: string): string | null {
  try {
    const url = new URL(address);
    return protocols.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}
