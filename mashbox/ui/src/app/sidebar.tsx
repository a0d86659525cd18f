import { useComputed } from "@preact/signals";
import { useState } from "preact/hooks";
import type { Conversation } from "../chat/types";
import { t } from "../texts";
import { open } from "./actions";
import { IconButton } from "./button";
import { ConversationLink } from "./conversation-link";
import { ComposeIcon, PanelIcon } from "./icons";
import { Search } from "./search-box";
import { listed } from "./store";
import { focusOn, MESSAGE_BOX, leaveSidebar, narrow, showSidebar, sidebarShown } from "./view";

/** The conversations: begin one, find one, go to one. */
export function Sidebar() {
  const [query, setQuery] = useState("");
  if (!sidebarShown.value) return null;
  return (
    <>
      {narrow.value && <div class="sidebar-backdrop" onClick={() => showSidebar(false)} />}
      <nav class="sidebar" aria-label={t.conversations}>
        <div class="sidebar-head">
          <span class="brand">{t.product}</span>
          <IconButton label={t.closeSidebar} expanded={true} onClick={() => showSidebar(false)}>
            <PanelIcon />
          </IconButton>
        </div>
        <button type="button" class="sidebar-new" onClick={begin}>
          <ComposeIcon />
          {t.newConversation}
        </button>
        <Search query={query} setQuery={setQuery} />
        {!query.trim() && <List />}
      </nav>
    </>
  );
}

function begin(): void {
  void open(null);
  leaveSidebar();
  focusOn(MESSAGE_BOX);
}

function List() {
  const groups = useComputed(() => groupsOf(listed.value, new Date())).value;
  if (!groups.length) return <p class="sidebar-empty">{t.noConversations}</p>;
  return (
    <div class="sidebar-list">
      {groups.map(([name, conversations]) => (
        <section key={name} aria-label={name}>
          <h2>{name}</h2>
          <ul>
            {conversations.map((conversation) => (
              <ConversationLink key={conversation.id} conversation={conversation} />
            ))}
          </ul>
        </section>
      ))}
    </div>
  );
}

/** Newest first, under the names of days and months. */
export function groupsOf(conversations: readonly Conversation[], now: Date): [string, Conversation[]][] {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate());
  const daysAgo = (days: number) => new Date(midnight).setDate(midnight.getDate() - days);
  const nameOf = ({ updated }: Conversation) => {
    if (updated >= midnight.getTime()) return t.today;
    if (updated >= daysAgo(1)) return t.yesterday;
    return updated >= daysAgo(7) ? t.lastWeek : t.month(updated);
  };
  return [...Map.groupBy(conversations, nameOf)];
}
