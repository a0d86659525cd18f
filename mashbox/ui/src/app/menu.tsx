import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export interface MenuAction {
  label: string;
  run: () => void;
  danger?: boolean;
}

type Props = { label: string; actions: readonly MenuAction[]; children: ComponentChildren };

/** A button with a menu, as the ARIA practices have it: arrows, Home, End, Escape. */
export function Menu({ label, actions, children }: Props) {
  const [shown, setShown] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const close = (giveBack: boolean) => {
    setShown(false);
    if (giveBack) button.current?.focus();
  };
  return (
    <div class="menu">
      <button
        ref={button}
        type="button"
        class="icon-button"
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={shown}
        onClick={() => setShown(!shown)}
      >
        {children}
      </button>
      {shown && <Items actions={actions} label={label} close={close} />}
    </div>
  );
}

type ItemsProps = { actions: readonly MenuAction[]; label: string; close: (giveBack: boolean) => void };

function Items({ actions, label, close }: ItemsProps) {
  const list = useRef<HTMLDivElement>(null);
  const items = () => [...list.current!.querySelectorAll<HTMLElement>("[role=menuitem]")];
  useEffect(() => {
    items()[0]?.focus();
    list.current!.scrollIntoView({ block: "nearest" });
  }, []);
  const press = (event: KeyboardEvent) => {
    const all = items();
    const at = all.indexOf(document.activeElement as HTMLElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next !== undefined) {
      all[(next + all.length) % all.length]?.focus();
    } else if (event.key === "Escape") {
      close(true);
    } else {
      return;
    }
    event.preventDefault();
  };
  const blur = (event: FocusEvent) => {
    if (!list.current?.contains(event.relatedTarget as Node | null)) close(false);
  };
  return (
    <div ref={list} class="menu-items" role="menu" aria-label={label} onKeyDown={press} onFocusOut={blur}>
      {actions.map(({ label: name, run, danger }) => (
        <button
          key={name}
          type="button"
          role="menuitem"
          tabIndex={-1}
          class={danger ? "danger" : ""}
          onClick={() => {
            close(true);
            run();
          }}
        >
          {name}
        </button>
      ))}
    </div>
  );
}
