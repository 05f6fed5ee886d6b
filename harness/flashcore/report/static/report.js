// Keeps selections in the address, shows one shape at a time, makes tables sortable and filterable. Without scripts the
// pages show their first shape.
"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  // An element with these properties and children.
  function make(name, properties = {}, ...children) {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  }
  const { up } = document.body.dataset;
  const single = up === undefined;
  const variantPage = (name) => (single ? `#variant-${name}` : `${up}variant/${name}.html`);

  // --- state: in the address's query; in a single file, after the page's name in the hash ---
  const KEPT = ["shape", "focus", "against"]; // carried over to the next page
  const address = () => (single ? location.hash.slice(1).split("?") : [location.hash.slice(1), location.search.slice(1)]);
  const params = () => new URLSearchParams(address()[1] ?? "");
  const listeners = [];
  const notify = () => listeners.forEach((listener) => listener());
  addEventListener("popstate", notify);
  const state = {
    get: (key) => params().get(key),
    // Each change is a history entry, except more letters in the field `typed`.
    set(changes, typed = "") {
      const now = params();
      const step = !now.get(typed);
      for (const [key, value] of Object.entries(changes)) value ? now.set(key, value) : now.delete(key);
      const query = now.toString() ? `?${now}` : "";
      const to = single ? `#${address()[0]}${query}` : `${location.pathname}${query}${location.hash}`;
      if (query !== (params().toString() ? `?${params()}` : "")) history[step ? "pushState" : "replaceState"](null, "", to);
      notify();
    },
    // Calls the listener now, after every change, after Back, and after another page of a single file is shown.
    follow(listener) {
      listeners.push(listener);
      listener();
    },
  };
  function carry(link) {
    const href = (link.dataset.href ??= link.getAttribute("href")); // the original, since a link may be followed again
    const target = /^(#[^?#]*|(?!\w+:)[^?#]*\.html)(\?[^#]*)?(#.*)?$/.exec(href);
    if (!target || (!single && href.startsWith("#"))) return;
    const next = new URLSearchParams(target[2] ?? "");
    for (const key of KEPT) if (!next.has(key) && state.get(key)) next.set(key, state.get(key));
    link.setAttribute("href", target[1] + (next.toString() ? `?${next}` : "") + (target[3] ?? ""));
  }
  for (const event of ["click", "auxclick", "contextmenu"])
    document.addEventListener(event, (e) => {
      const link = e.target instanceof Element ? e.target.closest("a[href]") : null;
      if (link) carry(link);
    }, true);

  // --- sorting: numbers and words; unmeasured values stay last in either direction ---
  const slug = (heading) => heading.dataset.key || heading.firstChild.textContent.trim().toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const key = (row, index) => {
    const cell = row.cells[index];
    if (!cell || cell.classList.contains("missing") || cell.classList.contains("none")) return null;
    const text = cell.dataset.sort ?? cell.textContent.trim();
    const number = Number(text.replaceAll(",", ""));
    return text === "" ? null : Number.isNaN(number) ? text.toLowerCase() : number;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en");
  const heads = (table) => Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells); // the last row, below column groups
  function sort(table, index, down, rows = Array.from(table.tBodies[0].rows)) {
    const headings = heads(table);
    const keyed = rows.map((row) => [index < 0 ? 0 : key(row, index), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return down ? compare(b, a) : compare(a, b);
    });
    ordered(headings, headings[index], down);
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  }
  function ordered(headings, heading, down) {
    for (const other of headings) other.ariaSort = other === heading ? (down ? "descending" : "ascending") : null;
  }
  // Calls `clicked(heading, its index, whether it is ascending)` for clicks of headings.
  function headed(table, clicked) {
    heads(table).forEach((heading, index) => {
      heading.dataset.key = slug(heading);
      const onclick = () => clicked(heading, index, heading.ariaSort === "ascending");
      heading.append(make("button", { type: "button", onclick }, ...heading.childNodes));
    });
  }
  const wordsOf = (text) => (text ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const order = (heading, down) => state.set({ sort: (down ? "-" : "") + heading.dataset.key });
  // A table with data-main keeps its order, filter and columns in the address.
  function sortable(table) {
    const main = "main" in table.dataset;
    headed(table, (heading, index, down) => (main ? order(heading, down) : sort(table, index, down)));
    const rows = Array.from(table.tBodies[0].rows);
    if (main) state.follow(() => arrange(table, rows));
  }
  // Columns with data-more are hidden by default; `cols` in the address lists the differences from the default.
  const otherColumns = () => (state.get("cols") ?? "").split(",").filter(Boolean);
  function arrange(table, rows) {
    const [wanted, words, other] = [state.get("sort") ?? "", wordsOf(state.get("q")), otherColumns()];
    const at = heads(table).findIndex((heading) => heading.dataset.key === wanted.replace(/^-/, ""));
    sort(table, at, wanted.startsWith("-"), rows);
    const hidden = heads(table).map((heading) => "more" in heading.dataset !== other.includes(heading.dataset.key));
    for (const row of table.rows) for (const cell of row.cells) cell.hidden = hidden[cell.cellIndex];
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  }
  function controls(form) {
    const boxes = all("[name=col]", form);
    form.addEventListener("input", ({ target }) => {
      const cols = boxes.filter((box) => box.checked !== box.defaultChecked).map((box) => box.value).join(",");
      state.set({ q: form.elements.q.value.trim(), cols }, target.name);
    });
    state.follow(() => {
      show(form.elements.q, state.get("q"));
      for (const box of boxes) box.checked = box.defaultChecked !== otherColumns().includes(box.value);
    });
  }
  // A field's text, unless it is only the space before the next word.
  function show(field, text) {
    if (field.value.trim() !== (text ?? "")) field.value = text ?? "";
  }

  // --- packed parts: of a page until it is loaded (`now`), a shape until it is selected, a fold until it is opened ---
  function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  const data = async (name) => JSON.parse(await unpacked(document.getElementById(`${name}-data`).textContent));
  async function unfold(folded) {
    const part = make("div", { className: folded.className.replace("packed ", ""), id: folded.dataset.anchor ?? "" });
    Object.assign(part.dataset, folded.dataset);
    part.innerHTML = await unpacked(folded.textContent);
    if (!folded.isConnected) return; // already unfolded by another call
    folded.replaceWith(part);
    await enliven(part);
  }
  document.addEventListener("toggle", ({ target }) => all(":not(div).closed", target).forEach(unfold), true);
  async function showShape(page) {
    const select = page.querySelector("[data-switch] select");
    if (!select) return;
    const wanted = state.get("shape");
    const match = Array.from(select.options).find((option) => option.dataset.names.split(" ").includes(wanted));
    select.value = (match || select.options[0]).value;
    const folded = all(":not(div).byshape", page).filter((part) => part.dataset.shape === select.value);
    await Promise.all(folded.map(unfold));
    for (const part of all(".byshape", page)) part.hidden = part.dataset.shape !== select.value;
  }
  document.addEventListener("change", ({ target }) => {
    if (target.closest("[data-switch]")) state.set({ shape: target.value });
  }, true);

  addEventListener("submit", (event) => event.preventDefault()); // forms only change the address

  // --- the search for a variant: names from a separate file, since they are the same on every page ---
  const search = document.querySelector("[role=search]");
  const names = single ? all("[data-anchor^=variant-]").map((page) => page.dataset.title) : (window.variants ?? []);
  search?.lastElementChild.append(...names.map((name) => new Option(name)));
  function visit(name) {
    const link = make("a", { href: variantPage(name) });
    carry(link);
    location.href = link.href;
  }
  search?.addEventListener("input", ({ target, inputType }) => {
    if (inputType === "insertReplacementText" && names.includes(target.value)) visit(target.value);
  });
  search?.addEventListener("submit", () => {
    const word = search.firstElementChild.value.trim();
    const name = names.includes(word) ? word : names.find((other) => other.includes(word));
    if (name) visit(name);
  });

  // Adds behavior to a page, or to an unfolded part of it.
  const makers = [];
  function enliven(root) {
    all("table.sortable", root).forEach(sortable);
    all("form[data-controls]", root).forEach(controls);
    return Promise.all([...makers.map((maker) => maker(root)), ...all(":not(div).now", root).map(unfold)]);
  }
  window.flashcore = {
    state, all, make, unpacked, data, headed, order, ordered, wordsOf, variantPage, focus, show,
    // Runs `maker(root)` on the document, and on parts unfolded later.
    add: (maker) => makers.push(maker),
  };
  // Other scripts, which follow this one, have added theirs by then.
  document.addEventListener("DOMContentLoaded", async () => {
    listeners.push(() => showShape(document.querySelector(".page.current") ?? document.querySelector(".page")));
    await Promise.all([enliven(document), single ? open() : showShape(document.querySelector(".page"))]);
    document.documentElement.classList.remove("pending");
  });

  // --- hover text for touch screens and the keyboard: Enter goes from a table's region into it, arrow keys move ---
  const inspector = document.getElementById("inspector");
  const inspect = (text = "") => {
    inspector.hidden = !text;
    inspector.textContent = text;
  };
  document.addEventListener("click", (event) => {
    const from = event.target instanceof Element ? event.target : null;
    for (const open of all(".menu[open]")) if (open !== from?.closest(".menu")) open.open = false;
    inspect(from?.closest("a, button, summary, label") ? "" : from?.closest("td[title], th[title], dd[title], li[title], .badge[title]")?.title);
  });
  // Focuses a cell, or what it contains to be clicked.
  function focus(cell, options) {
    const inner = cell?.querySelector("button, a, summary") ?? cell;
    if (inner === cell) inner?.setAttribute("tabindex", -1);
    inner?.focus(options);
    return inner;
  }
  const STEPS = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], Enter: [1, 0] };
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (key === "Escape") {
      inspect();
      for (const open of all(".menu[open]")) open.open = false;
    }
    const inside = key === "Enter" ? target.matches(".scroll") : target.matches("td, th, td *, tbody th *");
    if (!STEPS[key] || !inside) return;
    event.preventDefault();
    const cell = target.closest("td, th") ?? target.querySelector("thead th");
    const [down, right] = STEPS[key];
    const { rows } = cell.closest("table");
    let next, { rowIndex } = cell.parentElement, { cellIndex } = cell;
    do next = rows[(rowIndex += down)]?.cells[(cellIndex += right)];
    while (rows[rowIndex] && cell.parentElement.cells[cellIndex] && !next?.offsetParent); // hidden, or a row of space
    inspect(focus(next)?.title || next?.title);
  });

  // --- all pages in one file: show the one in the address; the others stay packed until they are opened ---
  async function open() {
    const name = decodeURIComponent(address()[0]);
    const matches = all("script.packed[data-anchor]").filter((s) => name === s.dataset.anchor || name.startsWith(s.dataset.anchor + "-"));
    const [packed] = matches.sort((a, b) => b.dataset.anchor.length - a.dataset.anchor.length);
    if (packed) await unfold(packed);
    const target = document.getElementById(name);
    const page = target?.closest(".page") ?? document.querySelector(".page");
    for (const other of all(".page")) other.classList.toggle("current", other === page);
    document.title = document.title.replace(/^[^·]*·/, `${page.dataset.title} ·`);
    await showShape(page);
    notify();
    if (target && target !== page) target.scrollIntoView();
    else scrollTo(0, 0);
  }
  if (single) {
    document.body.classList.add("paged");
    addEventListener("hashchange", open);
  }
})();
