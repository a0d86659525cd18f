import type { TextFile } from "../chat/types";
import { t } from "../texts";
import { IconButton } from "./button";
import { CloseIcon, FileIcon } from "./icons";

/** A file of a message, which can be taken away as long as that is not sent. */
export function FileChip({ file, remove }: { file: TextFile; remove?: () => void }) {
  return (
    <span class="file-chip">
      <FileIcon />
      <span class="file-name">{file.name}</span>
      <small>{t.lines(file.text.replace(/\n$/, "").split("\n").length)}</small>
      {remove && (
        <IconButton label={t.removeFile(file.name)} onClick={remove}>
          <CloseIcon />
        </IconButton>
      )}
    </span>
  );
}
