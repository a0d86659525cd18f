import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { t } from "../texts";
import { IconButton } from "./button";
import { CloseIcon } from "./icons";

type Props = {
  title: string;
  children: ComponentChildren;
  class?: string;
  /** Without it the dialog can't be left. */
  onClose?: () => void;
};

/** A modal dialog: the browser holds the focus in it and gives it back afterwards. */
export function Dialog({ title, children, onClose, ...rest }: Props) {
  const ref = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const dialog = ref.current!;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const cancel = (event: Event) => {
    event.preventDefault();
    onClose?.();
  };
  // A press on the backdrop lands on the dialog itself.
  const press = (event: PointerEvent) => {
    if (event.target === ref.current) onClose?.();
  };
  return (
    <dialog
      ref={ref}
      class={`dialog ${rest.class ?? ""}`}
      aria-labelledby={heading}
      onCancel={cancel}
      onPointerDown={press}
    >
      <div class="dialog-body">
        <div class="dialog-head">
          <h2 id={heading}>{title}</h2>
          {onClose && (
            <IconButton label={t.close} onClick={onClose}>
              <CloseIcon />
            </IconButton>
          )}
        </div>
        {children}
      </div>
    </dialog>
  );
}
