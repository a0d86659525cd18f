import { effect, signal } from "@preact/signals";

/** How the page is shown; kept in this browser. */

export type Theme = "system" | "light" | "dark";

const wide = matchMedia("(min-width: 56rem)");

export const narrow = signal(!wide.matches);
export const sidebarShown = signal(wide.matches && read("sidebar") !== "hidden");
export const settingsShown = signal(false);
export const theme = signal<Theme>(themeOf(read("theme")));
wide.addEventListener("change", () => {
  narrow.value = !wide.matches;
  sidebarShown.value = wide.matches && read("sidebar") !== "hidden";
});

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
  keep("theme", theme.value);
});

export function showSidebar(shown: boolean): void {
  sidebarShown.value = shown;
  // On a narrow screen the side bar lies over the page, for a moment only.
  if (!narrow.peek()) keep("sidebar", shown ? "shown" : "hidden");
}

/** After something was chosen in it. */
export function leaveSidebar(): void {
  if (narrow.peek()) showSidebar(false);
}

function themeOf(value: string | null): Theme {
  return value === "light" || value === "dark" ? value : "system";
}

function read(name: string): string | null {
  try {
    return localStorage.getItem(`mashbox.${name}`);
  } catch {
    return null;
  }
}

function keep(name: string, value: string): void {
  try {
    localStorage.setItem(`mashbox.${name}`, value);
  } catch {
    // A browser that keeps nothing: the choice lasts as long as the page.
  }
}

/** Ids of the two boxes that other parts of the page send the focus to. */
export const MESSAGE_BOX = "message-box";
export const SEARCH_BOX = "search-box";

/** Give a box the focus: at once when it is there, so that no key is lost, else when it is drawn. */
export function focusOn(id: string): void {
  const box = document.getElementById(id);
  if (box) box.focus();
  else requestAnimationFrame(() => document.getElementById(id)?.focus());
}
