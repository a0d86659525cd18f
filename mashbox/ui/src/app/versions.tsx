import { placeOf } from "../chat/tree";
import type { Message } from "../chat/types";
import { t } from "../texts";
import { show } from "./actions";
import { IconButton } from "./button";
import { BackIcon, ForwardIcon } from "./icons";
import { tree } from "./store";

/** Walks between the versions of a message; nothing when there is one only. */
export function Versions({ message }: { message: Message }) {
  const { index, count, previous, next } = placeOf(tree.value, message);
  if (count < 2) return null;
  return (
    <span class="versions">
      <IconButton label={t.previousVersion} disabled={!previous} onClick={() => previous && show(message, previous)}>
        <BackIcon />
      </IconButton>
      <span data-testid="branch" aria-label={t.version(index + 1, count)} role="img">
        {index + 1}/{count}
      </span>
      <IconButton label={t.nextVersion} disabled={!next} onClick={() => next && show(message, next)}>
        <ForwardIcon />
      </IconButton>
    </span>
  );
}
