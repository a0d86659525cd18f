import { useSignalEffect, signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { contentOf } from "../chat/prompt";
import type { Message } from "../chat/types";
import { t } from "../texts";
import { edit } from "./actions";
import { IconButton } from "./button";
import { CopyButton } from "./copy-button";
import { FileChip } from "./file-chip";
import { PencilIcon } from "./icons";
import { grow } from "./grow";
import { Versions } from "./versions";
import { focusOn, MESSAGE_BOX } from "./view";

/** The id of a message that should be edited: the message box sets it. */
export const editAsked = signal<string | null>(null);

/** A message of the reader's. */
export function UserTurn({ message }: { message: Message }) {
  const [editing, setEditing] = useState(false);
  useSignalEffect(() => {
    if (editAsked.value !== message.id) return;
    editAsked.value = null;
    setEditing(true);
  });
  const leave = () => {
    setEditing(false);
    focusOn(MESSAGE_BOX);
  };
  return (
    <article class="turn user" aria-label={t.you} id={`message-${message.id}`} tabIndex={-1}>
      <h2 class="visually-hidden">{t.you}</h2>
      {message.files && (
        <div class="files">
          {message.files.map((file, place) => (
            <FileChip key={place} file={file} />
          ))}
        </div>
      )}
      {editing ? (
        <Editor message={message} leave={leave} />
      ) : (
        <>
          {message.text && <div class="bubble">{message.text}</div>}
          <div class="turn-actions">
            <Versions message={message} />
            <CopyButton text={() => contentOf(message)} />
            <IconButton label={t.edit} onClick={() => setEditing(true)}>
              <PencilIcon />
            </IconButton>
          </div>
        </>
      )}
    </article>
  );
}

function Editor({ message, leave }: { message: Message; leave: () => void }) {
  const box = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(message.text);
  useEffect(() => {
    const area = box.current!;
    grow(area);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }, []);
  const submit = () => {
    if (!text.trim() && !message.files?.length) return;
    leave();
    edit(message, text.trim());
  };
  const press = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (event.key === "Escape") leave();
    else if (event.key === "Enter" && !event.shiftKey) submit();
    else return;
    event.preventDefault();
  };
  return (
    <div class="editor">
      <textarea
        ref={box}
        aria-label={t.editMessage}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          grow(event.currentTarget);
        }}
        onKeyDown={press}
      />
      <div class="editor-actions">
        <button type="button" class="button" onClick={leave}>
          {t.cancel}
        </button>
        <button type="button" class="button primary" onClick={submit}>
          {t.sendEdited}
        </button>
      </div>
    </div>
  );
}
