import { effect } from "@preact/signals";
import { t } from "../texts";
import { open } from "./actions";
import { openId, opened } from "./store";

/**
 * Keep the open conversation in the address, so that going back and reloading work.
 *
 * At once with the change, not after the next frame as effects of components: whoever goes back as soon as a
 * conversation shows must leave this one, not the one before.
 */
export async function followAddress(): Promise<void> {
  const asked = () => location.hash.slice(1) || null;
  addEventListener("popstate", () => void open(asked()));
  await open(asked());
  effect(() => {
    const id = openId.value;
    if (asked() !== id) history.pushState(null, "", id ? `#${id}` : location.pathname);
  });
  effect(() => {
    const title = opened.value?.title;
    document.title = title ? `${title} · ${t.product}` : t.product;
  });
}
