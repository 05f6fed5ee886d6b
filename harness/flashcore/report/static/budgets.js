// The table of all verdicts. Of tens of thousands of rows only those in view are in the DOM. Order and filter are kept in
// the address. A column is its distinct values and the index of each row's.
"use strict";
(() => {
  let state, all; // from report.js, once it is loaded
  const WORDS = ["status", "variant", "arch", "shape", "kernel", "reason"];
  const FIELDS = ["kind", "fact", "tier", "variant", "q"];
  const AROUND = 12; // rows kept above and below those in view

  // Created once: creating a formatter takes longer than using it.
  const WHOLE = new Intl.NumberFormat("en");
  const SIX = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
  // In the format of flashcore.model.text.number.
  function number(value) {
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value !== "number") return value;
    if (Number.isInteger(value)) return WHOLE.format(value);
    const size = Math.abs(value);
    if (size >= 1e-4 && size < 1e6) return SIX.format(value);
    const [digits, power] = value.toExponential(5).split("e");
    return `${Number(digits)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  }

  class Verdicts {
    constructor(table, given) {
      this.table = table;
      this.body = table.tBodies[0];
      this.box = table.parentElement;
      this.page = table.closest(".page");
      this.form = this.page.querySelector("form.controls");
      this.count = given.count;
      this.linked = new Set(given.linked); // variants with a page
      for (const name of [...WORDS, "required", "budget", "launch", "value", "headroom", "from"]) {
        const [values, at] = given[name];
        this[name] = { values, at: Uint32Array.from(at.length ? at : values.keys()) };
      }
      this.rank = given.rank;
      this.ranks = {};
      this.sorting();
      this.read();
      state.heard((changes) => Object.keys(changes).length || this.read());
      this.box.addEventListener("scroll", () => this.draw());
      new ResizeObserver(() => this.draw()).observe(this.box);
    }
    get(name, row) {
      return this[name].values[this[name].at[row]];
    }

    // --- order: each row's rank in a column, computed once; rows without a value stay last ---
    places(key) {
      if (this.ranks[key]) return this.ranks[key];
      const of = { status: ["status", (s) => this.rank[s]], budget: ["budget", (b) => b[0]], limit: ["budget", (b) => b[2]],
        headroom: [key, (text) => text && parseFloat(text.replaceAll(",", "").replace("−", "-").replace("<1", ".5"))], reason: ["reason", (r) => r || null] };
      const [column, take] = of[key] ?? [key, (v) => v];
      const values = this[column].values.map((v) => take(v) ?? null);
      const given = values.map((v) => (typeof v === "boolean" ? Number(v) : v));
      const order = Uint32Array.from(given.keys()).filter((i) => given[i] !== null);
      if (order.every((i) => typeof given[i] === "number")) {
        const numbers = Float64Array.from(given);
        order.sort((a, b) => numbers[a] - numbers[b]);
      } else {
        const { compare } = new Intl.Collator("en");
        order.sort((a, b) => compare(String(given[a]), String(given[b])));
      }
      const rank = new Int32Array(given.length).fill(-1);
      order.forEach((i, place) => {
        const before = order[place - 1];
        rank[i] = place && given[before] === given[i] ? rank[before] : place + 1;
      });
      const rows = new Int32Array(this.count);
      for (let row = 0; row < this.count; row++) rows[row] = rank[this[column].at[row]];
      return (this.ranks[key] = rows);
    }
    sorting() {
      window.flashcore.headed(this.table, (heading, _, down) => {
        state.set({ sort: (down ? "-" : "") + heading.dataset.key });
        this.choose();
      });
      for (const kind of ["input", "change"]) this.form.addEventListener(kind, ({ target }) => this.keep(target.type === "search" ? target.name : ""));
      this.form.addEventListener("submit", (event) => event.preventDefault());
      this.form.elements.clear.addEventListener("click", () => this.only({}));
    }

    // --- the filter: from the address into the form, and back ---
    // Passes are hidden unless a filter is set.
    without() {
      const chosen = FIELDS.some(state.get);
      return new Set((state.get("without") ?? (chosen ? "" : "pass")).split(","));
    }
    read() {
      const { elements } = this.form;
      const hidden = this.without();
      for (const box of all("[name=status]", this.form)) box.checked = !hidden.has(box.value);
      for (const name of FIELDS) elements[name].value = state.get(name) ?? "";
      this.choose();
    }
    keep(typed) {
      const { elements } = this.form;
      const without = all("[name=status]", this.form).filter((box) => !box.checked).map((box) => box.value).join(",") || "none";
      state.set({ without, ...Object.fromEntries(FIELDS.map((name) => [name, elements[name].value.trim()])) }, typed);
      this.choose();
    }
    only(chosen) {
      state.set({ without: "none", kind: "", fact: "", tier: "", variant: "", q: "", ...chosen });
      this.read();
    }
    choose() {
      const kind = state.get("kind") || "limit";
      const [fact, tier, part] = ["fact", "tier", "variant"].map((name) => (state.get(name) ?? "").toLowerCase());
      const without = this.without();
      const budgets = this.budget.values.map(
        ([, f, , , t, severity]) => (kind === "all" || severity === kind) && (!fact || f === fact) && (!tier || t === tier),
      );
      const variants = this.variant.values.map((name) => (this.linked.has(part) ? name === part : name.toLowerCase().includes(part)));
      const statuses = this.status.values.map((status) => !without.has(status));
      const words = (state.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean).map((word) => [
        ...WORDS.map((name) => [this[name].at, this[name].values.map((v) => String(v ?? "").toLowerCase().includes(word))]),
        [this.budget.at, this.budget.values.map(([name, f]) => name.toLowerCase().includes(word) || f.includes(word))],
      ]);
      const kept = new Uint8Array(this.count);
      for (let row = 0; row < this.count; row++)
        kept[row] = budgets[this.budget.at[row]] && variants[this.variant.at[row]] && statuses[this.status.at[row]] ? 1 : 0;
      for (const columns of words) {
        const hits = new Uint8Array(this.count);
        for (const [at, hit] of columns) if (hit.includes(true)) for (let row = 0; row < this.count; row++) hits[row] |= hit[at[row]];
        for (let row = 0; row < this.count; row++) kept[row] &= hits[row];
      }
      const matching = new Uint32Array(this.count);
      let many = 0;
      for (let row = 0; row < this.count; row++) if (kept[row]) matching[many++] = row;
      const rows = matching.subarray(0, many);
      const sort = state.get("sort") ?? "";
      const key = sort.replace(/^-/, "");
      const heading = Array.from(this.table.tHead.rows[0].cells).find((h) => h.dataset.key === key);
      for (const h of this.table.tHead.rows[0].cells) h.removeAttribute("aria-sort");
      if (heading) {
        heading.setAttribute("aria-sort", sort.startsWith("-") ? "descending" : "ascending");
        const rank = this.places(key);
        // Numbers that encode rank and row sort without a comparison function.
        const down = sort.startsWith("-");
        const keys = new Float64Array(many);
        for (let i = 0; i < many; i++) {
          const place = rank[rows[i]];
          keys[i] = (place < 0 ? this.count + 1 : down ? this.count - place : place) * this.count + rows[i];
        }
        keys.sort();
        for (let i = 0; i < many; i++) rows[i] = keys[i] % this.count;
      }
      this.rows = rows;
      this.table.setAttribute("aria-rowcount", many + 1);
      this.form.querySelector("output").textContent = `${WHOLE.format(many)} of ${WHOLE.format(this.count)} shown`;
      this.box.scrollTop = 0;
      this.first = -1;
      this.draw();
    }

    // --- the rows in view ---
    draw() {
      this.height ||= 27;
      const many = Math.ceil((this.box.clientHeight || 600) / this.height) + 2 * AROUND;
      const from = Math.max(0, Math.min(Math.floor(this.box.scrollTop / this.height) - AROUND, this.rows.length - many));
      const start = from - (from % 2); // steps of 2 keep the row striping and avoid redraws for small scrolls
      if (start === this.first && this.many === many) return;
      [this.first, this.many] = [start, many];
      const shown = Array.from(this.rows.slice(start, start + many));
      const focused = this.body.contains(document.activeElement) && document.activeElement.closest("td");
      this.body.replaceChildren(
        this.space(start), ...shown.map((row, i) => this.row(row, start + i)), this.space(this.rows.length - start - shown.length),
      );
      if (focused) {
        const again = this.body.querySelector(`[aria-rowindex="${focused.parentElement.getAttribute("aria-rowindex")}"]`)?.cells[focused.cellIndex];
        if (again) window.flashcore.focus(again, { preventScroll: true });
        else this.box.focus({ preventScroll: true });
      }
      const real = this.body.rows[1]?.offsetHeight;
      if (shown.length && real && Math.abs(real - this.height) > 1) {
        this.height = real;
        this.first = -1;
        this.draw();
      }
    }
    space(rows) {
      const row = document.createElement("tr");
      row.className = "space";
      row.ariaHidden = "true";
      row.style.height = `${rows * this.height}px`;
      return row;
    }
    row(at, index) {
      const [budget, fact, limit, source, tier, , unit] = this.get("budget", at);
      const [status, variant, arch, shape, kernel, reason] = WORDS.map((name) => this.get(name, at));
      const [value, headroom, launch, from] = ["value", "headroom", "launch", "from"].map((name) => this.get(name, at));
      const row = document.createElement("tr");
      row.setAttribute("aria-rowindex", index + 2);
      row.dataset.status = status;
      const cell = (text, title = "", kind = "text") => {
        const td = row.insertCell();
        td.className = kind;
        if (title) td.title = title;
        td.append(text);
        return td;
      };
      const badge = document.createElement("span");
      badge.className = `badge ${status}`;
      badge.append(status === "open" ? "not yet" : status.replace("_", " "));
      cell(badge).append(status === "unmeasured" && this.get("required", at) ? " required" : "");
      cell(budget, `${budget}\non the fact ${fact}\n${source}`);
      cell(this.link(variant), variant);
      cell(arch ?? "any", arch ? "" : "the measured GPU's arch");
      cell(shape ?? "any", shape ?? "does not depend on the shape");
      cell(launch === null ? (kernel ?? "whole case") : `${kernel} #${launch}`, kernel ?? "");
      if (value === null) cell("unmeasured", reason, "missing");
      else cell(`${number(value)}${unit && typeof value === "number" ? ` ${unit}` : ""}`, `${value} ${unit}\n${fact}, ${from ? `from ${from}` : "from the run"}`, "number");
      cell(limit, `${source}\ntier ${tier}`);
      cell(headroom ?? "–", "", "number");
      cell((reason || source).split("\n")[0], reason || source);
      return row;
    }
    link(name) {
      if (!this.linked.has(name)) return name;
      const link = document.createElement("a");
      link.href = window.flashcore.variantPage(name);
      link.textContent = name;
      return link;
    }
  }

  // --- the matrix: a cell filters the results ---
  function matrix(table) {
    const facts = Array.from(table.tHead.rows[0].cells, (cell) => cell.dataset.fact);
    const heading = document.getElementById(table.dataset.matrix);
    table.addEventListener("click", (event) => {
      const cell = event.target.closest("button")?.closest("td");
      if (!cell) return;
      verdicts.only({ variant: cell.parentElement.dataset.variant, fact: facts[cell.cellIndex] });
      heading.scrollIntoView();
      verdicts.box.focus({ preventScroll: true });
    });
  }

  document.addEventListener("flashcore", () => {
    ({ state, all } = window.flashcore);
    window.flashcore.add(async (root) => {
      for (const table of all("table[data-verdicts]", root)) {
        const verdicts = new Verdicts(table, await window.flashcore.data(table.dataset.verdicts));
        window.verdicts = verdicts;
        addEventListener("hashchange", () => verdicts.page.offsetParent && verdicts.read());
      }
      for (const table of all("table[data-matrix]", root)) matrix(table);
    });
  });
})();
