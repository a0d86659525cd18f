import { model } from "../api/server";
import { t } from "../texts";
import { suggested } from "./composer";

/** What stands in a conversation that is not begun. */
export function Empty() {
  return (
    <section class="empty">
      <p class="empty-model">{model.value?.id ?? t.product}</p>
      <h2>{t.emptyTitle}</h2>
      <p class="empty-text">{t.emptyText}</p>
      <ul class="starters">
        {t.starters.map(({ title, text }) => (
          <li key={title}>
            <button type="button" class="starter" onClick={() => (suggested.value = text)}>
              <strong>{title}</strong>
              <span>{text}</span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
