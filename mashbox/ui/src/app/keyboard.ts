import { useEffect } from "preact/hooks";
import { open, stop } from "./actions";
import { run } from "./store";
import { focusOn, MESSAGE_BOX, narrow, SEARCH_BOX, settingsShown, showSidebar, sidebarShown } from "./view";

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
        focusOn(SEARCH_BOX);
      } else if (command && event.shiftKey && event.key.toLowerCase() === "o") {
        event.preventDefault();
        void open(null);
        focusOn(MESSAGE_BOX);
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
    focusOn(MESSAGE_BOX);
  } else if (run.peek()) {
    stop();
  }
}
