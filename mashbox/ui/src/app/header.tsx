import { model } from "../api/server";
import { t } from "../texts";
import { open } from "./actions";
import { IconButton } from "./button";
import { ComposeIcon, PanelIcon, SlidersIcon } from "./icons";
import { opened } from "./store";
import { focusOn, MESSAGE_BOX, settingsShown, showSidebar, sidebarShown } from "./view";

/** The line above the messages: what is open, which model answers. */
export function Header() {
  const title = opened.value?.title;
  return (
    <header class="header">
      {!sidebarShown.value && (
        <>
          <IconButton label={t.openSidebar} expanded={false} onClick={() => showSidebar(true)}>
            <PanelIcon />
          </IconButton>
          <IconButton label={t.newConversation} onClick={begin}>
            <ComposeIcon />
          </IconButton>
        </>
      )}
      <h1 class={title ? "header-title" : "header-title visually-hidden"}>{title || t.newConversation}</h1>
      {!title && <span class="header-gap" />}
      {model.value && (
        <span class="model" title={model.value.id}>
          {model.value.id}
        </span>
      )}
      <IconButton label={t.settings} onClick={() => (settingsShown.value = true)}>
        <SlidersIcon />
      </IconButton>
    </header>
  );
}

function begin(): void {
  void open(null);
  focusOn(MESSAGE_BOX);
}
