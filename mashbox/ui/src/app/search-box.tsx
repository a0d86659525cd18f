import { useEffect, useRef, useState } from "preact/hooks";
import { choose } from "../chat/tree";
import type { Hit } from "../chat/search";
import { t } from "../texts";
import { open } from "./actions";
import { SearchIcon } from "./icons";
import { conversations, listed, loadTree, searchIndex, setChosen } from "./store";
import { leaveSidebar, SEARCH_BOX } from "./view";
import { scrollTo } from "./scroll";

const APPLE = /Mac|iPhone|iPad/.test(navigator.platform);

type Props = { query: string; setQuery: (query: string) => void };

/** The search box and, while it holds something, what was found. */
export function Search({ query, setQuery }: Props) {
  const box = useRef<HTMLInputElement>(null);
  const results = useRef<HTMLUListElement>(null);
  const hits = useHits(query);
  const press = (event: KeyboardEvent) => {
    if (event.key === "Escape" && query) setQuery("");
    else if (event.key === "ArrowDown") step(1);
    else if (event.key === "ArrowUp") step(-1);
    else return;
    event.preventDefault();
  };
  /** Between the box and its results. */
  const step = (by: number) => {
    const stops = [box.current!, ...(results.current?.querySelectorAll("a") ?? [])];
    stops[stops.indexOf(document.activeElement as HTMLInputElement) + by]?.focus();
  };
  return (
    <search class="search" onKeyDown={press}>
      <div class="search-box">
        <SearchIcon />
        <input
          id={SEARCH_BOX}
          ref={box}
          onFocus={(event) => event.currentTarget.select()}
          type="search"
          aria-label={t.search}
          placeholder={t.search}
          value={query}
          onInput={(event) => setQuery(event.currentTarget.value)}
        />
        {!query && (
          <kbd aria-hidden="true" class="search-keys">
            {t.searchKeys(APPLE)}
          </kbd>
        )}
      </div>
      <div class="visually-hidden" role="status">
        {hits && t.searchCount(hits.length)}
      </div>
      {hits?.length === 0 && <p class="sidebar-empty">{t.searchNothing(query.trim())}</p>}
      {hits && hits.length > 0 && (
        <ul class="search-results" ref={results}>
          {hits.map((hit) => (
            <Result key={hit.conversation.id} hit={hit} />
          ))}
        </ul>
      )}
    </search>
  );
}

function Result({ hit }: { hit: Hit }) {
  const { conversation, excerpt } = hit;
  const follow = (event: MouseEvent) => {
    event.preventDefault();
    void reveal(hit);
  };
  return (
    <li>
      <a href={`#${conversation.id}`} onClick={follow}>
        <span class="result-title">{conversation.title || t.untitled}</span>
        {excerpt.length > 0 && (
          <span class="result-excerpt">
            {excerpt.map((part, place) => (place % 2 ? <mark key={place}>{part}</mark> : part))}
          </span>
        )}
      </a>
    </li>
  );
}

/** Open what was found, on the branch that holds it. */
async function reveal({ conversation: { id }, message }: Hit): Promise<void> {
  const tree = await loadTree(id);
  const conversation = conversations.peek().get(id);
  if (message && conversation) setChosen(id, choose(tree, conversation.chosen, message.id));
  // Before it is shown: it is drawn from there on.
  if (message) scrollTo(message.id);
  await open(id);
  leaveSidebar();
}

/** What is found, a moment after the last key; null without a query. */
function useHits(query: string): Hit[] | null {
  const [hits, setHits] = useState<Hit[] | null>(null);
  const all = listed.value;
  useEffect(() => {
    if (!query.trim()) return setHits(null);
    let stale = false;
    const timer = setTimeout(async () => {
      const index = await searchIndex();
      if (!stale) setHits(index.search(query, all));
    }, 80);
    return () => {
      stale = true;
      clearTimeout(timer);
    };
  }, [query, all]);
  return hits;
}
