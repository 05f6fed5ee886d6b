// The table of all verdicts. Of tens of thousands of rows only those in view are in the DOM. Order and filter are kept in
// the address. A column is its distinct values in their order, those without a value last, and the index of each row's.
"use strict";
(() => {
  const { state, all, make, headed, order, wordsOf, ordered, variantPage, focus, show, data, add } = window.flashcore;
  const WORDS = ["status", "variant", "arch", "shape", "kernel", "reason"];
  const FIELDS = ["kind", "fact", "tier", "variant", "q"];
  const AROUND = 12; // rows kept above and below those in view
  const WHOLE = new Intl.NumberFormat("en"); // created once: creating a formatter takes longer than using it

  class Verdicts {
    constructor(table, given) {
      Object.assign(this, { table, body: table.tBodies[0], box: table.parentElement, page: table.closest(".page") });
      this.form = this.page.querySelector("form.controls");
      this.columns = given.columns;
      this.every = Array.from({ length: given.count }, (_, row) => row);
      this.linked = new Set(given.linked); // variants with a page
      this.height = 27;
      headed(table, (heading, _, down) => order(heading, down));
      for (const kind of ["input", "change"]) this.form.addEventListener(kind, ({ target }) => this.keep(target.type === "search" ? target.name : ""));
      this.form.elements.clear.addEventListener("click", () => this.only({}));
      this.box.addEventListener("scroll", () => this.draw());
      new ResizeObserver(() => this.draw()).observe(this.box);
      state.follow(() => this.read());
    }
    get(name, row) {
      const [values, at] = this.columns[name];
      return values[at[row]];
    }

    // --- the filter: from the address into the form, and back ---
    // Passes are hidden unless a filter is set.
    without() {
      const chosen = FIELDS.some(state.get);
      return new Set((state.get("without") ?? (chosen ? "" : "pass")).split(","));
    }
    read() {
      const hidden = this.without();
      for (const box of all("[name=status]", this.form)) box.checked = !hidden.has(box.value);
      for (const name of FIELDS) show(this.form.elements[name], state.get(name));
      this.choose();
    }
    keep(typed) {
      const { elements } = this.form;
      const without = all("[name=status]", this.form).filter((box) => !box.checked).map((box) => box.value).join(",") || "none";
      state.set({ without, ...Object.fromEntries(FIELDS.map((name) => [name, elements[name].value.trim()])) }, typed);
    }
    only(chosen) {
      state.set({ without: "none", kind: "", fact: "", tier: "", variant: "", q: "", ...chosen });
    }
    // Whether a row's value passes: tested once for each distinct one.
    test(name, passes) {
      const [values, at] = this.columns[name];
      const passed = values.map(passes);
      return (row) => passed[at[row]];
    }
    choose() {
      const [fact, tier, part] = ["fact", "tier", "variant"].map((name) => (state.get(name) ?? "").toLowerCase());
      const kind = state.get("kind") || "limit";
      const without = this.without();
      const tests = [
        this.test("status", (status) => !without.has(status)),
        this.test("budget", ([, f, , t, severity]) => (kind === "all" || severity === kind) && (!fact || f === fact) && (!tier || t === tier)),
        this.test("variant", (name) => (this.linked.has(part) ? name === part : name.toLowerCase().includes(part))),
        ...wordsOf(state.get("q")).map((word) => {
          const hits = WORDS.map((name) => this.test(name, (value) => String(value ?? "").toLowerCase().includes(word)));
          hits.push(this.test("budget", ([name, f]) => name.toLowerCase().includes(word) || f.includes(word)));
          return (row) => hits.some((hit) => hit(row));
        }),
      ];
      this.rows = this.every.filter((row) => tests.every((test) => test(row)));
      const sort = state.get("sort") ?? "";
      const headings = Array.from(this.table.tHead.rows[0].cells);
      const heading = headings.find((h) => h.dataset.key === sort.replace(/^-/, ""));
      const down = sort.startsWith("-");
      ordered(headings, heading, down);
      if (heading) {
        const [values, at] = this.columns[heading.dataset.key];
        const places = values.map((value, i) => (value === null ? Infinity : down ? -i : i));
        this.rows.sort((a, b) => places[at[a]] - places[at[b]] || a - b);
      }
      this.table.ariaRowCount = this.rows.length + 1;
      this.form.querySelector("output").textContent = `${WHOLE.format(this.rows.length)} of ${WHOLE.format(this.every.length)} shown`;
      this.box.scrollTop = 0;
      this.drawn = "";
      this.draw();
    }

    // --- the rows in view ---
    draw() {
      const many = Math.ceil((this.box.clientHeight || 600) / this.height) + 2 * AROUND;
      const start = Math.max(0, Math.min(Math.floor(this.box.scrollTop / this.height) - AROUND, this.rows.length - many));
      const place = `${start} ${many} ${this.height}`;
      if (place === this.drawn) return;
      this.drawn = place;
      const shown = this.rows.slice(start, start + many);
      const focused = this.body.contains(document.activeElement) && document.activeElement.closest("td");
      this.body.replaceChildren(
        this.space(start), ...shown.map((row, i) => this.row(row, start + i)), this.space(this.rows.length - start - shown.length),
      );
      if (focused) {
        const again = this.body.querySelector(`[aria-rowindex="${focused.parentElement.ariaRowIndex}"]`)?.cells[focused.cellIndex];
        if (again) focus(again, { preventScroll: true });
        else this.box.focus({ preventScroll: true });
      }
      const real = this.body.rows[1]?.offsetHeight;
      if (shown.length && real && Math.abs(real - this.height) > 1) {
        this.height = real;
        this.draw();
      }
    }
    space(rows) {
      const row = make("tr", { className: "space", ariaHidden: "true" });
      row.style.height = `${rows * this.height}px`;
      return row;
    }
    row(at, index) {
      const [budget, fact, source, tier, , unit] = this.get("budget", at);
      const [status, variant, arch, shape, kernel, reason] = WORDS.map((name) => this.get(name, at));
      const [value, shown, limit, headroom, launch, from] = ["value", "shown", "limit", "headroom", "launch", "from"].map((name) => this.get(name, at));
      const cell = (text, title = "", className = "text") => make("td", { className, title }, text);
      const badge = make("span", { className: `badge ${status}` }, status === "open" ? "not yet" : status.replace("_", " "));
      const state = cell(badge);
      if (status === "unmeasured" && this.get("required", at)) state.append(" required");
      return make("tr", { ariaRowIndex: index + 2 },
        state,
        cell(budget, `${budget}\non the fact ${fact}\n${source}`),
        cell(this.linked.has(variant) ? make("a", { href: variantPage(variant) }, variant) : variant, variant),
        cell(arch ?? "any", arch ? "" : "the measured GPU's arch"),
        cell(shape ?? "any", shape ?? "does not depend on the shape"),
        cell(launch === null ? (kernel ?? "whole case") : `${kernel} #${launch}`, kernel ?? ""),
        value === null ? cell("unmeasured", reason, "missing")
          : cell(shown, `${value} ${unit}\n${fact}, ${from ? `from ${from}` : "from the run"}`, "number"),
        cell(limit, `${source}\ntier ${tier}`),
        cell(headroom ?? "–", "", "number"),
        cell((reason ?? source).split("\n")[0], reason ?? source),
      );
    }
  }

  add(async (root) => {
    for (const table of all("table[data-verdicts]", root)) window.verdicts = new Verdicts(table, await data(table.dataset.verdicts));
    // A cell of the matrix filters the results.
    for (const table of all("table[data-matrix]", root))
      table.addEventListener("click", ({ target }) => {
        const cell = target.closest("button")?.closest("td");
        if (!cell) return;
        const fact = table.tHead.rows[0].cells[cell.cellIndex].dataset.fact;
        window.verdicts.only({ variant: cell.parentElement.dataset.variant, fact });
        document.getElementById(table.dataset.matrix).scrollIntoView();
        window.verdicts.box.focus({ preventScroll: true });
      });
  });
})();
