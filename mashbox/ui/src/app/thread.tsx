import { useLayoutEffect, useMemo, useState } from "preact/hooks";
import type { Message } from "../chat/types";
import { isDrawing } from "../render/frames";
import { t } from "../texts";
import { Empty } from "./empty";
import { DownIcon } from "./icons";
import { IconButton } from "./button";
import { AssistantTurn } from "./assistant-turn";
import type { Run } from "./run";
import { UserTurn } from "./user-turn";
import { atEnd, begin, isAsked, scrollToEnd, useFollow } from "./scroll";
import { opening, openId, path, run } from "./store";

/** The messages of the shown branch. */
export function Thread() {
  const follow = useFollow();
  const id = openId.value;
  const messages = path.value;
  const running = run.value;
  const live = running?.message.peek().id;
  const shown = useLast(id, messages);
  useLayoutEffect(begin, [id]);
  const last = messages.at(-1)?.id;
  const isComing = opening.value || isDrawing.value || shown.length < messages.length;
  return (
    <div class="thread-frame">
      <div class="thread" ref={follow.ref} onScroll={follow.onScroll} tabIndex={-1}>
        <div
          class="thread-content"
          role="log"
          aria-label={t.messages}
          aria-busy={running !== null || isComing}
          aria-live={running || isComing ? "off" : "polite"}
        >
          {messages.length === 0 && <Empty />}
          {shown.map((message) => (
            <Turn
              key={message.id}
              message={message}
              run={running && message.id === live ? running : null}
              last={message.id === last}
            />
          ))}
        </div>
      </div>
      {!atEnd.value && messages.length > 0 && (
        <IconButton label={t.toEnd} class="to-end" onClick={scrollToEnd}>
          <DownIcon />
        </IconButton>
      )}
    </div>
  );
}

type Props = { message: Message; run: Run | null; last: boolean };

/** One message: drawn again only if it is another one now. */
function Turn({ message, run, last }: Props) {
  return useMemo(
    () => (message.role === "user" ? <UserTurn message={message} /> : <AssistantTurn message={message} run={run} last={last} />),
    [message, run, last],
  );
}

const FEW = 8;

/** The last messages at once, or those from the one that is asked for; those before them some a frame. */
function useLast(id: string | null, messages: readonly Message[]): readonly Message[] {
  const [grown, setGrown] = useState<{ id: string | null | undefined; hidden: number }>({ id: undefined, hidden: 0 });
  let hidden = Math.min(grown.hidden, messages.length);
  if (grown.id !== id) {
    const asked = messages.findIndex((message) => isAsked(message.id));
    hidden = Math.max(0, asked >= 0 ? asked - 2 : messages.length - FEW);
    setGrown({ id, hidden });
  }
  useLayoutEffect(() => {
    if (hidden === 0) return;
    const frame = requestAnimationFrame(() => setGrown({ id, hidden: Math.max(0, hidden - FEW) }));
    return () => cancelAnimationFrame(frame);
  }, [id, hidden]);
  return hidden === 0 ? messages : messages.slice(hidden);
}
