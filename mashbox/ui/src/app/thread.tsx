import { useEffect } from "preact/hooks";
import { t } from "../texts";
import { Empty } from "./empty";
import { DownIcon } from "./icons";
import { IconButton } from "./button";
import { AssistantTurn } from "./assistant-turn";
import { UserTurn } from "./user-turn";
import { atEnd, begin, scrollToEnd, useFollow } from "./scroll";
import { opening, openId, path, run } from "./store";

/** The messages of the shown branch. */
export function Thread() {
  const follow = useFollow();
  const id = openId.value;
  const messages = path.value;
  const running = run.value;
  const live = running?.message.peek().id;
  useEffect(begin, [id]);
  const last = messages.at(-1)?.id;
  return (
    <div class="thread-frame">
      <div class="thread" ref={follow.ref} onScroll={follow.onScroll} tabIndex={-1}>
        <div
          class="thread-content"
          role="log"
          aria-label={t.messages}
          aria-busy={running !== null || opening.value}
          aria-live={running ? "off" : "polite"}
        >
          {messages.length === 0 && <Empty />}
          {messages.map((message) =>
            message.role === "user" ? (
              <UserTurn key={message.id} message={message} />
            ) : (
              <AssistantTurn
                key={message.id}
                message={message}
                run={running && message.id === live ? running : null}
                last={message.id === last}
              />
            ),
          )}
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
