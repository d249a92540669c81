// The pages of a list that follow its first one.
import { html, useState } from "../../vendor/preact.js";
import { attempt } from "../actions.js";
import { get } from "../api.js";

/**
 * Load the older entries of a list on demand. Return {older, setOlder, button}: the loaded entries, and a button that
 * loads the next page (false if there is none). `first` is the first page of `path`, which useLoad has loaded with the
 * parameters `query`.
 */
export function useOlder(path, limit, first, query = {}) {
  const [older, setOlder] = useState([]);
  const [cursor, setCursor] = useState(null);
  const next = cursor ?? first?.nextCursor;
  const more = async () => {
    const page = await attempt(() => get(path, { ...query, limit, before: next }));
    if (!page) return;
    setOlder([...older, ...page.items]);
    setCursor(page.nextCursor ?? "");
  };
  return { older, setOlder, button: Boolean(first && next) && html`<p class="body"><button onClick=${more}>Load older</button></p>` };
}
