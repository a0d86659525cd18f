import type { ComponentChildren } from "preact";

type Props = {
  /** Read out, and shown when the pointer rests on the button. */
  label: string;
  onClick: () => void;
  children: ComponentChildren;
  class?: string;
  disabled?: boolean;
  pressed?: boolean;
  expanded?: boolean;
};

/** A button that shows an icon only. */
export function IconButton({ label, onClick, children, pressed, expanded, disabled, ...rest }: Props) {
  return (
    <button
      type="button"
      class={`icon-button ${rest.class ?? ""}`}
      aria-label={label}
      title={label}
      aria-pressed={pressed}
      aria-expanded={expanded}
      disabled={disabled}
      onClick={onClick}
    >
      {children}
    </button>
  );
}
