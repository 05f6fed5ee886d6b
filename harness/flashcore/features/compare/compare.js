// Draws the pair that is chosen. The page's data hold every conclusion; the choice is kept in the address.
"use strict";
(() => {
  const { state, all, make, variantPage, data, add } = window.flashcore;
  const NEAR = 3; // lines shown around those that differ

  // --- cells ---
  const missing = (why) => make("td", { className: "missing", title: why || "no reason was recorded" }, "unmeasured");
  const number = (text) => make("td", { className: "number" }, text);
  const plain = (...content) => make("td", {}, ...content);
  const name = (text, title = "") => make("th", { scope: "row", className: "name", title }, text);
  const bar = (...parts) => make("span", { className: "bar" }, ...parts.map(([kind, className, left, width]) => {
    const part = make(kind, { className });
    Object.assign(part.style, { left: `${left}%`, width: width && `${width}%` });
    return part;
  }));
  // A name that may be broken after its underscores.
  const breaks = (text) => text.split("_").flatMap((part, i) => (i ? ["_", make("wbr"), part] : [part]));
  const row = (...cells) => make("tr", {}, ...cells);
  const heads = (...texts) => make("thead", {}, row(...texts.map((text) => make("th", { scope: "col" }, ...[text].flat()))));
  // Headings of numbers stand right, as the numbers do.
  function table(className, caption, head, rows) {
    const numbers = ({ cellIndex }) => rows.some((other) => other.cells[cellIndex]?.className === "number");
    for (const cell of Array.from(head.rows[0].cells).filter(numbers)) cell.className = "number";
    return make("table", { className }, make("caption", {}, caption), head, make("tbody", {}, ...rows));
  }
  const scrolled = (ariaLabel, shown) => make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel }, shown);
  const heading = (level, text, detail) => make(level, {}, `${text} `, make("span", { className: "detail" }, detail));
  const note = (text) => make("p", { className: "note" }, text);

  class Comparison {
    constructor(box, given) {
      this.box = box;
      this.page = box.closest(".page");
      this.given = given;
      this.labels = this.given.sides.map(([label]) => label);
      this.form = this.page.querySelector("form[data-pair]");
      this.form.addEventListener("change", ({ target }) => state.set({ [target.name]: target.value }));
      const worse = this.page.querySelector("[data-worse]");
      worse?.addEventListener("change", () => {
        for (const other of all(".changed tbody tr:not(.worse)", this.page)) other.hidden = worse.checked;
      });
      state.follow(() => this.draw());
    }
    // How a side is named in the address.
    key(i) {
      const [, variant, isHere] = this.given.sides[i];
      return isHere ? variant : `${variant}@${this.given.runs[1]}`;
    }
    fill(part, ...content) {
      this.box.querySelector(`[data-part=${part}]`).replaceChildren(...content);
    }

    // What is compared: as the address has it, else as the page has it.
    choose() {
      const { shapes } = this.given;
      const option = all("[data-switch] option", this.page).find((o) => o.dataset.names.split(" ").includes(state.get("shape")));
      this.name = option?.value ?? Object.keys(shapes)[0];
      this.shape = shapes[this.name];
      const pairs = [this.shape.first, ...Object.keys(this.shape.pairs)].map((pair) => pair.split(" ").map(Number));
      const chosen = (field) => (i) => this.key(i) === state.get(field);
      const focus = pairs.map(([i]) => i).find(chosen("focus")) ?? pairs[0][0];
      const partners = [...new Set(pairs.filter(([i]) => i === focus).map(([, j]) => j))];
      this.pair = [focus, partners.find(chosen("against")) ?? partners[0]];
      const focused = [...new Set(pairs.map(([i]) => i))].sort((a, b) => a - b);
      for (const [field, sides, i] of [["focus", focused, 0], ["against", partners, 1]]) {
        const select = this.form.elements[field];
        select.replaceChildren(...sides.map((side) => new Option(this.labels[side], this.key(side))));
        select.value = this.key(this.pair[i]);
      }
    }

    draw() {
      if (this.box.closest(".paged .page:not(.current)")) return;
      this.choose();
      const [focus, against] = this.pair;
      this.cases = this.pair.map((i) => this.shape.cases[i]);
      this.sides = [against, focus].map((i) => this.labels[i]); // before and after
      const compared = this.shape.pairs[this.pair.join(" ")];
      const title = (i) => {
        const [label, variant, isHere] = this.given.sides[i];
        return isHere ? make("a", { href: variantPage(variant) }, label) : make("b", {}, label);
      };
      const [between, behind] = compared.answer;
      this.fill("answer", title(focus), ` ${between} `, title(against), `${behind}.`);
      for (const part of ["contradiction", "same"]) this.box.querySelector(`[data-part=${part}]`).hidden = !compared[part];
      this.box.querySelector("[data-part=contradiction] span:last-child").textContent = compared.contradiction;
      this.fill("limiter", ...this.pair.flatMap((i, at) => [make("dt", {}, this.labels[i]), make("dd", {}, this.cases[at].limiter)]));
      this.fill("shape", this.name);
      ["before", "after"].forEach((part, at) => this.fill(part, ...breaks(this.sides[at])));
      const shown = (text) => (typeof text === "string" ? number(text) : missing(text.missing));
      this.fill("times", ...compared.times.map(([before, after, ratio, interval, verdict], at) =>
        row(name(this.given.modes[at]), ...[before, after, ratio, interval].map(shown), plain(verdict))));
      this.fill("counters", ...this.counters(compared.moved));
      this.fill("phases", ...this.phases());
      this.fill("source", heading("h2", "Source", "lines that machine code was made of"), this.source());
    }

    // Each counter's difference from the middle of one axis: better to the left, worse to the right.
    counters(moved) {
      const [now, was] = this.cases.map((c) => c.c);
      const differ = new Set(moved.map(([i]) => i));
      const rest = this.given.facts.map((_, i) => i).filter((i) => !differ.has(i) && (now[i] ?? was[i] ?? null) !== null);
      if (!differ.size && !rest.length) return [note(`Neither was profiled at ${this.name}.`)];
      const bound = `${100 * this.given.moved} %`;
      const counter = (i, lean, outcome) =>
        row(name(...this.given.facts[i]), plain(lean), ...[was, now].map((c) => (c[i] ? number(c[i]) : missing(`not counted at ${this.name}`))), plain(outcome));
      const lean = (size, outcome) => {
        const shown = bar(["i", outcome, Math.min(50, 50 + 50 * size), 50 * Math.abs(size)], ["u", "", 50]);
        shown.classList.add("lean");
        return shown;
      };
      const list = (label, caption, rows) => {
        const ends = make("span", { className: "sides" }, ...["← better", "worse →"].map((end) => make("span", {}, end)));
        return scrolled(label, table("pair", caption, heads("counter", ends, ...this.sides.map(breaks), "change"), rows));
      };
      const none = make("td", { colSpan: 5 }, `No difference: no counter that both have moved by more than ${bound}.`);
      const caption = `Differences of more than ${bound}, the largest first: percentages in points, others as a share of the larger value; each half of the axis is 100 %. Gray is neither better nor worse: less to the left, more to the right. ncu counted with caches flushed.`;
      const rows = moved.map(([i, size, outcome]) => counter(i, lean(size, outcome), outcome));
      const shown = [list("Differences", caption, rows.length ? rows : [row(none)])];
      if (rest.length) {
        const others = rest.map((i) => counter(i, "", now[i] === null || was[i] === null ? "" : "no difference"));
        const more = list("No difference", `Within ${bound} of each other, or counted of only one`, others);
        shown.push(make("details", {}, make("summary", {}, `${rest.length} others`), more));
      }
      return shown;
    }

    // Phases of both.
    phases() {
      const [now, was] = this.cases.map((c) => c.p);
      const phases = [...new Set([...Object.keys(was), ...Object.keys(now)])];
      if (!phases.length) return [];
      const share = (value) =>
        value === undefined ? missing("it was not measured there") : plain(bar(["i", "", 0, Math.min(value, 100)]), ` ${value.toFixed(1)} %`);
      const rows = phases.map((phase) => row(name(phase), share(was[phase]), share(now[phase])));
      const caption = "Where warps were found, % of the samples";
      return [heading("h3", "Phases", this.name), scrolled("Phases", table("pair", caption, heads("phase", ...this.sides.map(breaks)), rows))];
    }

    // --- source: what both have aligned, what differs beside each other ---
    source() {
      const [now, was] = this.pair.map((i) => (this.given.sources[i] ?? []).map((at) => this.given.lines[at]));
      const lacking = this.pair.filter((_, at) => ![now, was][at].length).map((i) => this.labels[i]);
      if (lacking.length) return note(`No source was recorded of ${lacking.join(" and ")}: it comes with a profile, and not of references.`);
      const pairs = aligned(was, now);
      const differs = pairs.map(([a, b]) => a?.[2] !== b?.[2]);
      const differ = differs.filter(Boolean).length;
      if (!differ) return note(`All ${was.length} lines are the same.`);
      const side = (line, before, className) => {
        if (!line) return [make("td", { className: "line" }), plain()];
        const [file, number, text] = line;
        const title = `${file}:${number}`;
        return [make("td", { className: "line", title }, file === before?.[0] ? number : title), make("td", { className }, make("code", {}, text))];
      };
      const rows = [];
      const last = [null, null];
      let equal = 0; // lines before this one that are not shown
      const fold = () => {
        if (equal) rows.push(make("tr", { className: "fold" }, make("td", { colSpan: 4 }, `${equal} equal line${equal > 1 ? "s" : ""}`)));
        equal = 0;
      };
      pairs.forEach((lines, i) => {
        if (!differs.slice(Math.max(0, i - NEAR), i + NEAR + 1).includes(true)) return void equal++;
        fold();
        rows.push(row(...lines.flatMap((line, at) => side(line, last[at], differs[i] ? ["gone", "new"][at] : "same"))));
        lines.forEach((line, at) => (last[at] = line ?? last[at]));
      });
      fold();
      const [before, after] = this.sides;
      const caption = `${before} left, ${after} right: ${differ} of ${pairs.length} lines differ. Comments and declarations make no machine code, and are not recorded`;
      const shown = table("diff", caption, make("thead", {}, row(...this.sides.map((label) => make("th", { scope: "col", colSpan: 2 }, label)))), rows);
      shown.tHead.before(make("colgroup", {}, ...["at", "", "at", ""].map((className) => make("col", { className }))));
      return scrolled("Source of both", shown);
    }
  }

  // Pairs of lines of two sources: equal lines beside each other, by the longest common subsequence, and what lies between.
  function aligned(a, b) {
    const wide = b.length + 1;
    const common = new Uint16Array((a.length + 1) * wide); // from a line of each to the ends
    for (let i = a.length - 1; i >= 0; i--)
      for (let j = b.length - 1; j >= 0; j--)
        common[i * wide + j] = a[i][2] === b[j][2] ? common[(i + 1) * wide + j + 1] + 1 : Math.max(common[(i + 1) * wide + j], common[i * wide + j + 1]);
    const pairs = [];
    let [gone, added] = [[], []];
    const flush = () => {
      for (let k = 0; k < Math.max(gone.length, added.length); k++) pairs.push([gone[k] ?? null, added[k] ?? null]);
      [gone, added] = [[], []];
    };
    let [i, j] = [0, 0];
    while (i < a.length || j < b.length) {
      if (i < a.length && j < b.length && a[i][2] === b[j][2]) {
        flush();
        pairs.push([a[i++], b[j++]]);
      } else if (j >= b.length || (i < a.length && common[(i + 1) * wide + j] >= common[i * wide + j + 1])) gone.push(a[i++]);
      else added.push(b[j++]);
    }
    flush();
    return pairs;
  }

  add(async (root) => {
    for (const box of all("[data-compare]", root)) window.comparison = new Comparison(box, await data(box.dataset.compare));
  });
})();
