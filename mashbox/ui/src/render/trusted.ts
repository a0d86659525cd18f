import type { Config } from "dompurify";
import workerAddress from "./highlight.worker?worker&url";

type Policy = NonNullable<Config["TRUSTED_TYPES_POLICY"]>;

/** What of the browser's `trustedTypes` is needed, which not every browser has. */
interface Factory {
  createPolicy(name: string, rules: { createHTML(html: string): string; createScriptURL(address: string): string }): Policy;
}

const factory = (globalThis as { trustedTypes?: Factory }).trustedTypes;

/**
 * The page's Content-Security-Policy lets no text become HTML or the address of a script but through this policy
 * (Trusted Types): it is DOMPurify's, for what that goes through, and the one worker's.
 */
export const policy: Policy | undefined = factory?.createPolicy("mashbox", {
  createHTML: (html) => html,
  createScriptURL: (address) => {
    if (address !== workerAddress) throw new TypeError(`${address} is no script of this page.`);
    return address;
  },
});

/** The address of the worker that colours code. */
export function trustedWorkerAddress(): string {
  // The browser wants the trusted object, whose type TypeScript has as a text.
  return (policy?.createScriptURL(workerAddress) ?? workerAddress) as string;
}
