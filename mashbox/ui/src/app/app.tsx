import { useSignalEffect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { watchServer } from "../api/server";
import { open } from "./actions";
import { Banners } from "./banners";
import { Composer } from "./composer";
import { DropZone } from "./dropzone";
import { Header } from "./header";
import { KeyDialog } from "./key-dialog";
import { useShortcuts } from "./keyboard";
import { Notices } from "./notices-view";
import { SettingsDialog } from "./settings-dialog";
import { Sidebar } from "./sidebar";
import { Status } from "./status";
import { openId, opened } from "./store";
import { Thread } from "./thread";
import { sidebarShown } from "./view";
import { t } from "../texts";

/** The whole page. */
export function App() {
  useEffect(watchServer, []);
  useAddress();
  useShortcuts();
  return (
    <div class="page" data-sidebar={sidebarShown.value ? "shown" : "hidden"}>
      <Sidebar />
      <main class="main">
        <Header />
        <Banners />
        <Thread />
        <div class="foot">
          <Notices />
          <Composer />
          <Status />
        </div>
      </main>
      <SettingsDialog />
      <KeyDialog />
      <DropZone />
    </div>
  );
}

/** The open conversation is in the address, so that going back and reloading work. */
function useAddress(): void {
  useEffect(() => {
    const follow = () => void open(location.hash.slice(1) || null);
    addEventListener("popstate", follow);
    return () => removeEventListener("popstate", follow);
  }, []);
  useSignalEffect(() => {
    const id = openId.value;
    if ((location.hash.slice(1) || null) !== id) history.pushState(null, "", id ? `#${id}` : location.pathname);
  });
  useSignalEffect(() => {
    const title = opened.value?.title;
    document.title = title ? `${title} · ${t.product}` : t.product;
  });
}
