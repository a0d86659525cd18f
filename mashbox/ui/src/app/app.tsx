import { useEffect } from "preact/hooks";
import { watchServer } from "../api/server";
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
import { Thread } from "./thread";
import { sidebarShown } from "./view";

/** The whole page. */
export function App() {
  useEffect(watchServer, []);
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
