import { useEffect, useState } from "preact/hooks";
import { t } from "../texts";
import { IconButton } from "./button";
import { copyText } from "./clipboard";
import { CheckIcon, CopyIcon } from "./icons";
import { note, speak } from "./notices";

const SHOWN_MS = 1500;

/** Copies a text and says so. */
export function CopyButton({ text }: { text: () => string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async () => {
    if (!(await copyText(text()))) return note(t.copyFailed);
    setDone(true);
    speak(t.copied);
  };
  return (
    <IconButton label={t.copy} onClick={copy}>
      {done ? <CheckIcon /> : <CopyIcon />}
    </IconButton>
  );
}
