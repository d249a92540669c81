// Saved views of a page, such as the board. The browser stores the filters and the order of each under a name.
import { html, useState } from "../../vendor/preact.js";
import { go, link, route } from "../routes.js";
import { remember, remembered } from "../taste.js";
import { close, show } from "../parts/dialog.js";
import { toast } from "../parts/toasts.js";

function stored(key) {
  try {
    const found = JSON.parse(remembered(key, "{}"));
    return found && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

function NameForm({ save }) {
  const [name, setName] = useState("");
  const submit = (event) => {
    event.preventDefault();
    if (!name.trim()) return;
    close();
    save(name.trim());
  };
  return html`<form onSubmit=${submit} onReset=${close}>
    <h2>Save view</h2>
    <p>The filters and the order of this page, under a name. This browser keeps it.</p>
    <label>Name <input autofocus required maxlength="60" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
    <div class="buttons"><button type="reset">Cancel</button><button class="primary">Save</button></div>
  </form>`;
}

/**
 * A list to choose a view from, with a button to save the current view or remove the chosen one. page: the name of the
 * page; undefined for the board.
 */
export function Views({ page }) {
  const key = page ? `views-${page}` : "views";
  const [views, setViews] = useState(() => stored(key));
  const here = route.value.query.toString();
  const keep = (next) => {
    setViews(next);
    remember(key, JSON.stringify(next));
  };
  const chosen = Object.keys(views).find((name) => views[name] === here) ?? "";
  const names = Object.keys(views).sort((a, b) => a.localeCompare(b));
  const remove = () => {
    const { [chosen]: _gone, ...rest } = views;
    keep(rest);
    toast(`Removed the view "${chosen}"`);
  };
  const save = () => show(() => html`<${NameForm} save=${(name) => keep({ ...views, [name]: here })} />`, { label: "Save view" });
  if (!names.length && !here) return null;
  return html`${names.length > 0 && html`<select aria-label="View" value=${chosen} onChange=${(event) => go(link(...(page ? [page] : []), Object.fromEntries(new URLSearchParams(views[event.target.value] ?? ""))), { replace: true })}>
      <option value="">Views</option>${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
    </select>`}
    ${chosen ? html`<button onClick=${remove}>Remove view</button>` : here && html`<button onClick=${save}>Save view</button>`}`;
}
