// Renders openapi.json. Text from the document is only ever inserted as text, never as HTML.
const ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
const DEEPEST = 6;
const byId = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
}

class Schemas {
  constructor(components) { this.components = components; }

  resolve(schema) {
    const name = schema.$ref?.split("/").pop();
    return name ? { name, ...this.components[name] } : schema;
  }

  // Return the alternatives of a schema, or null if it has none.
  variants(schema) { return schema.anyOf ?? schema.oneOf ?? null; }

  type(schema, depth = 0) {
    const shown = this.resolve(schema);
    if (depth > DEEPEST) return "…";
    const variants = this.variants(shown);
    if (variants) return variants.map((one) => this.type(one, depth + 1)).join(" | ");
    if (shown.name) return shown.name;
    if (shown.const !== undefined) return JSON.stringify(shown.const);
    if (shown.type === "array") return `array of ${this.type(shown.items ?? {}, depth + 1)}`;
    if (shown.type === "object" && shown.additionalProperties?.type) {
      return `object of ${this.type(shown.additionalProperties, depth + 1)}`;
    }
    return [shown.type ?? "any", shown.format && `(${shown.format})`].filter(Boolean).join(" ");
  }

  limits(schema) {
    const shown = this.resolve(schema);
    const words = [];
    if (shown.enum) words.push(`one of ${shown.enum.map((word) => (word === "" ? "empty" : word)).join(", ")}`);
    if (shown.default !== undefined) words.push(`default ${JSON.stringify(shown.default)}`);
    if (shown.minimum !== undefined) words.push(`from ${shown.minimum}`);
    if (shown.maximum !== undefined) words.push(`to ${shown.maximum}`);
    if (shown.maxLength !== undefined) words.push(`${shown.minLength ?? 0} to ${shown.maxLength} characters`);
    if (shown.pattern) words.push(`matches ${shown.pattern}`);
    return words.join("; ");
  }

  // Return an example value, which includes optional fields.
  example(schema, depth = 0) {
    const shown = this.resolve(schema);
    if (depth > DEEPEST) return null;
    if (shown.examples?.length) return shown.examples[0];
    if (shown.const !== undefined) return shown.const;
    if (shown.default !== undefined && typeof shown.default !== "object") return shown.default;
    if (shown.enum) return shown.enum[0];
    const variants = this.variants(shown);
    if (variants) return this.example(variants[0], depth + 1);
    if (shown.type === "array") return [this.example(shown.items ?? {}, depth + 1)];
    if (shown.type === "object" || shown.properties) {
      const fields = Object.entries(shown.properties ?? {}).filter(([name]) => name !== "$schema");
      return Object.fromEntries(fields.map(([name, field]) => [name, this.example(field, depth + 1)]));
    }
    if (shown.type === "string") {
      if (shown.format === "date-time") return "2026-11-21T03:04:05.678Z";
      if (shown.format === "uri") return "about:blank";
      return shown.maxLength === 26 || shown.pattern?.includes("HJKMNP") ? ULID : "text";
    }
    return { integer: 0, number: 0.5, boolean: true }[shown.type] ?? null;
  }

  // Return the fields of a schema as nested lists, or null if it has none.
  fields(schema, depth = 0) {
    const shown = this.resolve(schema);
    if (depth > DEEPEST) return null;
    const variants = this.variants(shown);
    if (variants) {
      const lists = variants.map((one) => this.inside(one, depth)).filter(Boolean);
      return lists.length ? make("div", {}, ...lists) : null;
    }
    if (shown.type === "array") return this.fields(shown.items ?? {}, depth + 1);
    if (!shown.properties) return null;
    const rows = Object.entries(shown.properties).map(([name, field]) => {
      const inner = this.resolve(field);
      const row = make("li", {}, make("code", { textContent: name }), " ",
        make("span", { className: "type", textContent: this.type(field) }), " ",
        shown.required?.includes(name) ? make("span", { className: "required", textContent: "always" }) : "");
      const words = [field.description ?? inner.description, this.limits(field)].filter(Boolean).join(" · ");
      if (words) row.append(make("div", { className: "note", textContent: words }));
      const list = this.inside(field, depth + 1);
      if (list) row.append(list);
      return row;
    });
    return make("ul", { className: "fields" }, ...rows);
  }

  inside(schema, depth) {
    const list = this.fields(schema, depth + 1);
    if (!list) return null;
    return make("details", {}, make("summary", { className: "type", textContent: this.type(schema) }), list);
  }
}

function table(head, rows) {
  const cells = (tag, texts) => make("tr", {}, ...texts.map((text) => make(tag, {}, text)));
  return make("table", {}, make("thead", {}, cells("th", head)), make("tbody", {}, ...rows.map((row) => cells("td", row))));
}

function parameters(schemas, operation) {
  const rows = (operation.parameters ?? []).map((one) => [
    make("code", { textContent: one.name }),
    `${one.in}${one.required ? ", required" : ""}`,
    make("span", { className: "type", textContent: schemas.type(one.schema) }),
    [one.description, schemas.limits(one.schema)].filter(Boolean).join(" "),
  ]);
  return rows.length ? [make("h4", { textContent: "Parameters" }), table(["Name", "In", "Type", "Meaning"], rows)] : [];
}

function events(schemas, schema) {
  return (schema.oneOf ?? []).map((event) => {
    const data = event.properties.data;
    const name = event.properties.event.const;
    const wire = `event: ${name}\ndata: ${JSON.stringify(schemas.example(data))}`;
    return make("details", {}, make("summary", {}, make("code", { textContent: name })),
      schemas.fields(data) ?? "", make("pre", { tabIndex: 0, textContent: wire }));
  });
}

function body(schemas, mediaType, schema) {
  const title = make("p", {}, make("code", { textContent: mediaType }), " ",
    make("span", { className: "type", textContent: mediaType === "text/event-stream" ? "" : schemas.type(schema) }));
  if (mediaType === "text/event-stream") return [title, ...events(schemas, schema)];
  const fields = schemas.fields(schema);
  if (!fields) return [title];
  const example = JSON.stringify(schemas.example(schema), null, 2);
  return [title,
    make("details", {}, make("summary", { textContent: "Fields" }), fields),
    make("details", {}, make("summary", { textContent: "Example" }), make("pre", { tabIndex: 0, textContent: example }))];
}

function call(schemas, method, path, operation) {
  const filled = path.replace(/{(\w+)}/g, (_whole, name) => ({ taskName: "backup", lineNumber: "0" })[name] ?? ULID);
  const data = operation.requestBody?.content["application/json"]?.schema;
  const words = ["curl", "--unix-socket ringward.sock"];
  if (method !== "get") words.push(`-X ${method.toUpperCase()}`);
  if (data) words.push("-H 'Content-Type: application/json'", `-d '${JSON.stringify(schemas.example(data))}'`);
  return make("pre", { tabIndex: 0, textContent: [...words, `http://localhost${filled}`].join(" ") });
}

function article(schemas, method, path, operation) {
  const answers = Object.entries(operation.responses);
  const good = answers.filter(([status]) => Number(status) < 400);
  const bad = answers.filter(([status]) => Number(status) >= 400);
  const access = operation.security?.length === 0 ? "Needs no authentication." : "";
  const parts = [
    make("h3", {}, make("span", { className: `method ${method}`, textContent: method.toUpperCase() }), path),
    make("p", { textContent: [operation.summary, operation.description, access].filter(Boolean).join(" ") }),
    ...parameters(schemas, operation),
  ];
  for (const [mediaType, content] of Object.entries(operation.requestBody?.content ?? {})) {
    const need = operation.requestBody.required ? "required" : "optional";
    parts.push(make("h4", { textContent: `Request body, ${need}` }), ...body(schemas, mediaType, content.schema));
  }
  for (const [status, answer] of good) {
    parts.push(make("h4", { textContent: `${status} ${answer.description}` }));
    for (const [mediaType, content] of Object.entries(answer.content ?? {})) {
      parts.push(...body(schemas, mediaType, content.schema));
    }
  }
  const rows = bad.map(([status, answer]) => [status, answer.description]);
  parts.push(make("details", {}, make("summary", { textContent: `Errors: ${bad.map(([status]) => status).join(", ")}` }),
    table(["Status", "Meaning"], rows), ...(bad.length ? body(schemas, "application/problem+json", bad[0][1].content["application/problem+json"].schema) : [])));
  parts.push(make("h4", { textContent: "Call" }), call(schemas, method, path, operation));
  return make("article", { id: operation.operationId }, ...parts);
}

function link(method, path, operation) {
  return make("a", { href: `#${operation.operationId}`, title: operation.summary },
    make("span", { className: `method ${method}`, textContent: method.toUpperCase() }), path);
}

function filter(entries, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const { haystack, nodes } of entries) {
    const wanted = words.every((word) => haystack.includes(word));
    for (const node of nodes) node.hidden = !wanted;
  }
  for (const group of document.querySelectorAll("[data-tag]")) {
    group.hidden = ![...group.children].some((child) => child.tagName !== "H2" && !child.hidden);
  }
}

function show(openapi) {
  const schemas = new Schemas(openapi.components.schemas);
  const groups = new Map();
  const entries = [];
  for (const [path, methods] of Object.entries(openapi.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? "other";
      const node = article(schemas, method, path, operation);
      const entry = link(method, path, operation);
      if (!groups.has(tag)) groups.set(tag, { nodes: [], links: [] });
      groups.get(tag).nodes.push(node);
      groups.get(tag).links.push(entry);
      const haystack = `${method} ${path} ${operation.operationId} ${operation.summary} ${tag}`.toLowerCase();
      entries.push({ haystack, nodes: [node, entry] });
    }
  }
  const section = (tag, nodes) => {
    const made = make("section", {}, make("h2", { textContent: tag }), ...nodes);
    made.dataset.tag = tag;
    return made;
  };
  byId("toc").replaceChildren(...[...groups].map(([tag, { links }]) => section(tag, links)));
  byId("operations").replaceChildren(
    make("p", { textContent: `${openapi.info.description} OpenAPI ${openapi.openapi}, version ${openapi.info.version}.` }),
    ...[...groups].map(([tag, { nodes }]) => section(tag, nodes)));
  byId("filter").oninput = (event) => filter(entries, event.target.value);
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

try {
  const response = await fetch("openapi.json");
  if (!response.ok) throw new Error(`openapi.json: ${response.status}`);
  show(await response.json());
} catch (error) {
  byId("status").textContent = `Cannot load the API description: ${error.message}`;
}
