import { signal, useSignalEffect } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { hasThinkingSwitch, model } from "../api/server";
import { t } from "../texts";
import { saveSettings, send, stop } from "./actions";
import { attach, attached, detach, takeAttached } from "./attachments";
import { IconButton } from "./button";
import { draftOf, keepDraft } from "./drafts";
import { FileChip } from "./file-chip";
import { grow } from "./grow";
import { BulbIcon, ClipIcon, SendIcon, StopIcon } from "./icons";
import { scrollToEnd } from "./scroll";
import { current, path, run } from "./store";
import { editAsked } from "./user-turn";
import { MESSAGE_BOX } from "./view";

/** A text that the message box should take over. */
export const suggested = signal<string | null>(null);

/** On a touch screen Enter makes a new line: there is a button for sending, but no Shift. */
const touch = matchMedia("(pointer: coarse)");

/** The message box. */
export function Composer() {
  const conversation = current.value;
  const [text, setOwn] = useState(() => draftOf(conversation));
  const box = useRef<HTMLTextAreaElement>(null);
  const id = conversation.id;

  const setText = (next: string) => {
    setOwn(next);
    keepDraft(current.peek().id, next);
  };
  // Another conversation has another draft.
  useLayoutEffect(() => setOwn(draftOf(current.peek())), [id]);
  useLayoutEffect(() => grow(box.current!), [text]);
  useEffect(() => {
    if (!touch.matches) box.current?.focus();
  }, []);
  useSignalEffect(() => {
    if (suggested.value === null) return;
    setText(suggested.value);
    suggested.value = null;
    box.current?.focus();
  });

  const ready = text.trim() !== "" || attached.value.length > 0;
  const submit = () => {
    if (!ready || run.peek()) return;
    const files = takeAttached();
    setText("");
    send(text.trim(), files);
    scrollToEnd();
    // The button that was pressed makes way for another one.
    if (!touch.matches) box.current?.focus();
  };
  const press = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey && (!touch.matches || event.ctrlKey || event.metaKey)) submit();
    else if (event.key === "ArrowUp" && !text && editLast()) box.current?.blur();
    else return;
    event.preventDefault();
  };
  const paste = (event: ClipboardEvent) => {
    const files = event.clipboardData?.files;
    if (!files?.length) return;
    event.preventDefault();
    void attach(files);
  };

  return (
    <form class="composer" onSubmit={(event) => (event.preventDefault(), submit())}>
      {attached.value.length > 0 && (
        <div class="files">
          {attached.value.map((file, place) => (
            <FileChip key={place} file={file} remove={() => detach(place)} />
          ))}
        </div>
      )}
      <textarea
        id={MESSAGE_BOX}
        ref={box}
        rows={1}
        aria-label={t.message}
        placeholder={t.messageHint(model.value?.id ?? null)}
        enterkeyhint={touch.matches ? "enter" : "send"}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={press}
        onPaste={paste}
      />
      <div class="composer-row">
        <AttachButton />
        <ThinkingSwitch />
        <span class="composer-gap" />
        {run.value ? (
          <IconButton label={t.stop} class="round" onClick={stop}>
            <StopIcon />
          </IconButton>
        ) : (
          <IconButton label={t.send} class="round primary" disabled={!ready} onClick={submit}>
            <SendIcon />
          </IconButton>
        )}
      </div>
    </form>
  );
}

/** Edit the reader's last message, if there is one. */
function editLast(): boolean {
  const last = path.peek().findLast(({ role }) => role === "user");
  if (last) editAsked.value = last.id;
  return last !== undefined;
}

function AttachButton() {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <IconButton label={t.attach} onClick={() => input.current?.click()}>
        <ClipIcon />
      </IconButton>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label={t.attach}
        onChange={(event) => {
          void attach([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}

function ThinkingSwitch() {
  const { settings } = current.value;
  if (!hasThinkingSwitch.value) return null;
  return (
    <button
      type="button"
      class="switch-chip"
      aria-pressed={settings.thinking}
      title={t.thinkingHint}
      onClick={() => saveSettings({ ...settings, thinking: !settings.thinking })}
    >
      <BulbIcon />
      {t.thinkingSwitch}
    </button>
  );
}
