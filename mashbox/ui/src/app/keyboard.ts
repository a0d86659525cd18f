import { useEffect } from "preact/hooks";
import { open, stop } from "./actions";
import { run } from "./store";
import { composerAsked, narrow, searchAsked, settingsShown, showSidebar, sidebarShown } from "./view";

/** Keys that work anywhere on the page. Boxes and dialogs handle their own, and keep them from coming here. */
export function useShortcuts(): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.isComposing) return;
      const command = event.ctrlKey || event.metaKey;
      if (command && !event.altKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        settingsShown.value = false;
        showSidebar(true);
        searchAsked.value++;
      } else if (command && event.shiftKey && event.key.toLowerCase() === "o") {
        event.preventDefault();
        void open(null);
        composerAsked.value++;
      } else if (event.key === "Escape") {
        escape();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/** One thing at a time: an open dialog closes itself, then the side bar over the page, then the answer. */
function escape(): void {
  if (document.querySelector("dialog[open]")) return;
  if (narrow.peek() && sidebarShown.peek()) {
    showSidebar(false);
    composerAsked.value++;
  } else if (run.peek()) {
    stop();
  }
}
