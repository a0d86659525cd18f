import { useEffect, useRef, useState } from "preact/hooks";
import type { Conversation } from "../chat/types";
import { t } from "../texts";
import { open, remove, rename } from "./actions";
import { exportJson, exportMarkdown } from "./exchange";
import { MoreIcon } from "./icons";
import { Menu } from "./menu";
import { openId, runs } from "./store";
import { focusOn, MESSAGE_BOX, leaveSidebar, narrow } from "./view";

/** One entry of the side bar, with what can be done to it. */
export function ConversationLink({ conversation }: { conversation: Conversation }) {
  const [renaming, setRenaming] = useState(false);
  const { id } = conversation;
  const title = conversation.title || t.untitled;
  if (renaming) {
    return (
      <li>
        <TitleBox conversation={conversation} done={() => setRenaming(false)} />
      </li>
    );
  }
  const actions = [
    { label: t.rename, run: () => setRenaming(true) },
    { label: t.exportMarkdown, run: () => void exportMarkdown(id) },
    { label: t.exportThoughts, run: () => void exportMarkdown(id, { thoughts: true }) },
    { label: t.exportJson, run: () => void exportJson([id]) },
    { label: t.delete, run: () => remove(id), danger: true },
  ];
  return (
    <li class="conversation">
      <a href={`#${id}`} aria-current={openId.value === id ? "page" : undefined} onClick={(event) => go(event, id)}>
        {title}
        {runs.value.has(id) && <span class="running" role="img" aria-label={t.answering} />}
      </a>
      <Menu label={t.more(title)} actions={actions}>
        <MoreIcon />
      </Menu>
    </li>
  );
}

export function go(event: MouseEvent, id: string): void {
  // Other buttons and keys mean another tab.
  if (event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  void open(id);
  leaveSidebar();
  if (!narrow.peek()) focusOn(MESSAGE_BOX);
}

function TitleBox({ conversation, done }: { conversation: Conversation; done: () => void }) {
  const ref = useRef<HTMLInputElement>(null);
  const left = useRef(false);
  const { id } = conversation;
  useEffect(() => ref.current?.select(), []);
  const leave = (keep: boolean, byKey: boolean) => {
    // Enter and Escape take the box away, which blurs it once more.
    if (left.current) return;
    left.current = true;
    if (keep) rename(id, ref.current!.value);
    done();
    if (byKey) requestAnimationFrame(() => document.querySelector<HTMLElement>(`.sidebar [href="#${id}"]`)?.focus());
  };
  const press = (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    leave(event.key === "Enter", true);
  };
  return (
    <input
      ref={ref}
      class="title-box"
      aria-label={t.newTitle}
      defaultValue={conversation.title}
      onKeyDown={press}
      onBlur={() => leave(true, false)}
    />
  );
}
