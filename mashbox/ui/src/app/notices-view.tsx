import { t } from "../texts";
import { IconButton } from "./button";
import { CloseIcon } from "./icons";
import { dismiss, notices, spoken } from "./notices";

/** Short notes at the page's foot, and what only a screen reader hears. */
export function Notices() {
  return (
    <>
      <div class="notices" role="status">
        {notices.value.map(({ id, text, action }) => (
          <div class="notice" key={id}>
            <span>{text}</span>
            {action && (
              <button type="button" class="text-button" onClick={action.run}>
                {action.label}
              </button>
            )}
            <IconButton label={t.close} onClick={() => dismiss(id)}>
              <CloseIcon />
            </IconButton>
          </div>
        ))}
      </div>
      <div class="visually-hidden" aria-live="polite" data-testid="spoken">
        {spoken.value}
      </div>
    </>
  );
}
