import type { Message } from "../chat/types";
import { t } from "../texts";
import { show } from "./actions";
import { IconButton } from "./button";
import { BackIcon, ForwardIcon } from "./icons";
import { stay } from "./scroll";
import { places } from "./store";

/** Walks between the versions of a message; nothing when there is one only. */
export function Versions({ message }: { message: Message }) {
  const place = places.value.get(message.id);
  if (!place || place.count < 2) return null;
  const { index, count, previous, next } = place;
  const walk = (version: string | null, button: 0 | 1) => {
    if (!version) return;
    stay();
    show(message, version);
    // The other version has buttons of its own: the focus goes to the same one, or to the one that is left.
    requestAnimationFrame(() => {
      const buttons = document.querySelectorAll<HTMLButtonElement>(`#message-${version} .versions button`);
      (buttons[button]?.disabled ? buttons[1 - button] : buttons[button])?.focus();
    });
  };
  return (
    <span class="versions">
      <IconButton label={t.previousVersion} disabled={!previous} onClick={() => walk(previous, 0)}>
        <BackIcon />
      </IconButton>
      <span data-testid="branch" aria-label={t.version(index + 1, count)} role="img">
        {index + 1}/{count}
      </span>
      <IconButton label={t.nextVersion} disabled={!next} onClick={() => walk(next, 1)}>
        <ForwardIcon />
      </IconButton>
    </span>
  );
}
