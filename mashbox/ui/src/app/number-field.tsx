import { useEffect, useId, useState } from "preact/hooks";
import { t } from "../texts";

type Props = {
  name: string;
  hint: string;
  value: number | null;
  /** What counts when it is left out, if that is known. */
  unset?: number | undefined;
  least: number;
  most: number;
  step: number;
  set: (value: number | null) => void;
};

/** A number that may be left out. One out of bounds is said to be so, and not taken. */
export function NumberField({ name, hint, value, unset, least, most, step, set }: Props) {
  const [text, setText] = useState(value === null ? "" : String(value));
  const id = useId();
  const read = numberIn(text, least, most, step === 1);
  // A preset changes the value from outside.
  useEffect(() => {
    if (read !== value) setText(value === null ? "" : String(value));
  }, [value]);
  const type = (next: string) => {
    setText(next);
    const number = numberIn(next, least, most, step === 1);
    if (number !== undefined) set(number);
  };
  return (
    <div class="field number">
      <label class="field-name" for={id}>
        {name}
      </label>
      <input
        id={id}
        inputMode="decimal"
        autocomplete="off"
        placeholder={unset === undefined ? t.byDefault : String(unset)}
        value={text}
        aria-invalid={read === undefined}
        aria-describedby={`${id}-hint`}
        onInput={(event) => type(event.currentTarget.value)}
      />
      <small id={`${id}-hint`} class={read === undefined ? "problem" : ""}>
        {read === undefined ? t.outOfRange(least, most) : hint}
      </small>
    </div>
  );
}

/** Null for nothing, undefined for what is no number within the bounds. */
export function numberIn(text: string, least: number, most: number, whole: boolean): number | null | undefined {
  if (!text.trim()) return null;
  const number = Number(text.trim().replace(",", "."));
  if (!Number.isFinite(number) || number < least || number > most) return undefined;
  return whole && !Number.isInteger(number) ? undefined : number;
}
