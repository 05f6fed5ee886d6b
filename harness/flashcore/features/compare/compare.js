// Draws the pair that is chosen. The page's data hold every conclusion; the choice is kept in the address.
"use strict";
(() => {
  let state, all; // report.js's, once it is there
  const MOST_CELLS = 4e6; // of the table by which two sources are aligned
  const NEAR = 3; // lines shown around those that differ
  const esc = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

  // --- cells ---
  const missing = (why) => `<td class="missing" title="${esc(why || "no reason was recorded")}">unmeasured</td>`;
  const number = (text) => `<td class="number">${esc(text)}</td>`;
  const name = (text, why = "") => `<th scope="row" class="name"${why ? ` title="${esc(why)}"` : ""}>${esc(text)}</th>`;
  const breaks = (text) => text.split("_").map(esc).join("_<wbr>");
  const heads = (...texts) => `<thead><tr>${texts.map((t) => `<th scope="col">${t}</th>`).join("")}</tr></thead>`;
  const table = (kind, label, caption, inner) =>
    `<div class="scroll" tabindex="0" role="region" aria-label="${esc(label)}"><table class="${kind}"><caption>${caption}</caption>${inner}</table></div>`;
  const options = (select, items) => (select.innerHTML = items.map(([key, text]) => `<option value="${esc(key)}">${esc(text)}</option>`).join(""));

  class Comparison {
    constructor(box, given) {
      this.box = box;
      this.page = box.closest(".page");
      this.given = given;
      this.labels = this.given.sides.map(([label]) => label);
      this.form = this.page.querySelector("form[data-pair]");
      this.form.addEventListener("change", ({ target }) => state.set({ [target.name]: target.value }));
      this.form.addEventListener("submit", (event) => event.preventDefault());
      const worse = this.page.querySelector("[data-worse]");
      worse?.addEventListener("change", () => {
        for (const row of all(".changed tbody tr:not(.worse)", this.page)) row.hidden = worse.checked;
      });
      state.heard(() => this.draw());
      this.draw();
    }
    // How a side is named in the address.
    key(i) {
      const [, variant, own] = this.given.sides[i];
      return own ? variant : `${variant}@${this.given.runs[1]}`;
    }
    part(name) {
      return this.box.querySelector(`[data-part=${name}]`);
    }

    // What is compared: as the address has it, else as the page has it.
    choose() {
      const { shapes } = this.given;
      const asked = state.get("shape");
      const row = all("[data-switch] option", this.page).find((option) => option.dataset.names.split(" ").includes(asked));
      this.name = row?.value ?? Object.keys(shapes)[0];
      this.shape = shapes[this.name];
      const pairs = Object.keys(this.shape.pairs).map((pair) => pair.split(" ").map(Number));
      const place = (key) => this.given.sides.findIndex((_, i) => this.key(i) === state.get(key));
      const usual = this.shape.first.split(" ").map(Number);
      const focus = [place("focus"), usual[0]].find((i) => pairs.some(([one]) => one === i));
      const partners = pairs.filter(([one]) => one === focus).map(([, other]) => other);
      const others = [place("against"), ...(focus === usual[0] ? [usual[1]] : []), partners[0]];
      [this.focus, this.against] = [focus, others.find((i) => partners.includes(i))];
      this.cases = [this.focus, this.against].map((i) => this.shape.cases[i]);
      this.pair = this.shape.pairs[`${this.focus} ${this.against}`];
      const own = [...new Set(pairs.map(([one]) => one))].sort((a, b) => a - b);
      for (const [field, ids] of [["focus", own], ["against", partners]]) {
        options(this.form.elements[field], ids.map((i) => [this.key(i), this.labels[i]]));
        this.form.elements[field].value = this.key(this[field]);
      }
    }

    draw() {
      if (this.box.closest(".paged .page:not(.current)")) return;
      this.choose();
      const { focus, against, pair } = this;
      const title = (i) => {
        const [label, variant, own] = this.given.sides[i];
        if (!own) return `<b>${esc(label)}</b>`;
        return `<a href="${esc(window.flashcore.variantPage(variant))}">${esc(label)}</a>`;
      };
      const [between, behind] = pair.answer;
      this.part("answer").innerHTML = `${title(focus)} ${esc(between)} ${title(against)}${esc(behind)}.`;
      this.part("contradiction").hidden = !pair.contradiction;
      this.part("contradiction").lastElementChild.textContent = pair.contradiction;
      this.part("same").hidden = !pair.same;
      this.part("limiter").innerHTML = [focus, against].map((i, at) => `<dt>${esc(this.labels[i])}</dt><dd>${esc(this.cases[at].limiter)}</dd>`).join("");
      this.part("shape").textContent = this.name;
      for (const [part, i] of [["before", against], ["after", focus]]) this.part(part).innerHTML = breaks(this.labels[i]);
      const shown = (text) => (typeof text === "number" ? missing(this.given.reasons[text]) : number(text));
      this.part("times").innerHTML = pair.times.map(([before, after, ratio, interval, verdict], at) =>
        `<tr>${name(this.given.modes[at])}${[before, after, ratio, interval].map(shown).join("")}<td>${esc(verdict)}</td></tr>`).join("");
      this.part("counters").innerHTML = this.counters();
      this.part("charts").innerHTML = this.phases();
      this.part("source").innerHTML = `<h2>Source <span class="detail">lines that machine code was made of</span></h2>${this.source()}`;
    }

    // Each counter's difference from the middle of one axis: better to the left, worse to the right.
    counters() {
      const [now, was] = this.cases.map((c) => c.c);
      const moved = new Set(this.pair.moved.map(([i]) => i));
      const rest = this.given.facts.map((_, i) => i).filter((i) => !moved.has(i) && (now[i] ?? was[i] ?? null) !== null);
      if (!moved.size && !rest.length) return `<p class="note">Neither was profiled at ${esc(this.name)}.</p>`;
      const bound = `${100 * this.given.moved} %`;
      const row = (i, lean, outcome) => {
        const [fact, why] = this.given.facts[i];
        return `<tr>${name(fact, why)}<td>${lean}</td>${[was, now].map((c) => (c[i] ? number(c[i]) : missing(`not counted at ${this.name}`))).join("")}<td>${outcome}</td></tr>`;
      };
      const lean = (size, outcome) => {
        const width = (50 * Math.abs(size)).toFixed(1);
        return `<span class="bar lean"><i class="${outcome}" style="left:${size < 0 ? 50 - width : 50}%;width:${width}%"></i><u style="left:50%"></u></span>`;
      };
      const heading = heads("counter", `<span class="sides"><span>← better</span><span>worse →</span></span>`, ...[this.against, this.focus].map((i) => breaks(this.labels[i])), "change");
      const none = `<tr><td colspan="5">No difference: no counter that both have moved by more than ${bound}.</td></tr>`;
      const caption = `Differences of more than ${bound}, the largest first: percentages in points, others as a share of the larger value; each half of the axis is 100 %. Gray is neither better nor worse: less to the left, more to the right. ncu counted with caches flushed.`;
      const rows = this.pair.moved.map(([i, size, outcome]) => row(i, lean(size, outcome), outcome));
      const picture = table("num1 pair leans", "Differences", caption, `${heading}<tbody>${rows.join("") || none}</tbody>`);
      const others = rest.map((i) => row(i, "", now[i] === null || was[i] === null ? "" : "no difference")).join("");
      const more = table("num1 pair leans", "No difference", `Within ${bound} of each other, or counted of only one`, `${heading}<tbody>${others}</tbody>`);
      return picture + (rest.length ? `<details><summary>${rest.length} others</summary>${more}</details>` : "");
    }

    // Phases of both.
    phases() {
      const [now, was] = this.cases.map((c) => c.p);
      const keys = [...new Set([...Object.keys(was), ...Object.keys(now)])];
      if (!keys.length) return "";
      const [before, after] = [this.against, this.focus].map((i) => this.labels[i]);
      const bar = (v) => (v === undefined ? missing("it was not measured there") : `<td><span class="bar"><i style="width:${Math.min(v, 100)}%"></i></span> <b>${v.toFixed(1)} %</b></td>`);
      const body = keys.map((key) => `<tr><th scope="row">${esc(key)}</th>${bar(was[key])}${bar(now[key])}</tr>`).join("");
      const picture = `<table class="bars two"><caption>Where warps were found, % of the samples</caption>${heads("phase", breaks(before), breaks(after))}<tbody>${body}</tbody></table>`;
      return `<div><h3>Phases <span class="detail">${esc(this.name)}</span></h3>${picture}</div>`;
    }

    // --- source: what both have aligned, what differs beside each other ---
    source() {
      const [now, was] = [this.focus, this.against].map((i) => (this.given.sources[i] ?? []).map((at) => this.given.lines[at]));
      const lacking = [[now, this.focus], [was, this.against]].filter(([lines]) => !lines.length).map(([, i]) => this.labels[i]);
      if (lacking.length) return `<p class="note">No source was recorded of ${esc(lacking.join(" and "))}: it comes with a profile, and not of references.</p>`;
      const rows = beside(was, now);
      const differ = rows.filter(([a, b]) => !(a && b && a[2] === b[2])).length;
      if (!differ) return `<p class="note">All ${was.length} lines are the same.</p>`;
      const side = (line, before, sign) => {
        if (!line) return `<td class="line"></td><td></td>`;
        const [file, number, text] = line;
        const place = `${file}:${number}`;
        return `<td class="line" title="${esc(place)}">${file === before?.[0] ? number : esc(place)}</td><td class="${sign}"><code>${esc(text)}</code></td>`;
      };
      const shown = rows.map((_, i) => rows.slice(Math.max(0, i - NEAR), i + NEAR + 1).some(([a, b]) => !(a && b && a[2] === b[2])));
      const body = [];
      const last = [null, null];
      for (let i = 0; i < rows.length; i++) {
        if (!shown[i]) {
          let to = i;
          while (to < rows.length && !shown[to]) to++;
          body.push(`<tr class="fold"><td colspan="4">${to - i} equal line${to - i > 1 ? "s" : ""}</td></tr>`);
          i = to - 1;
          continue;
        }
        const [a, b] = rows[i];
        const same = a && b && a[2] === b[2];
        body.push(`<tr>${side(a, last[0], same ? "same" : "gone")}${side(b, last[1], same ? "same" : "new")}</tr>`);
        if (a) last[0] = a;
        if (b) last[1] = b;
      }
      const [before, after] = [this.against, this.focus].map((i) => esc(this.labels[i]));
      const caption = `${before} left, ${after} right: ${differ} of ${rows.length} lines differ. Comments and declarations make no machine code, and are not recorded`;
      return table("diff", "Source of both", caption, `<colgroup><col class="at"><col><col class="at"><col></colgroup><thead><tr><th scope="col" colspan="2">${before}</th><th scope="col" colspan="2">${after}</th></tr></thead><tbody>${body.join("")}</tbody>`);
    }
  }

  // Rows of two sources: equal lines beside each other, by the longest common subsequence, and what lies between.
  function beside(a, b) {
    let head = 0;
    while (head < a.length && head < b.length && a[head][2] === b[head][2]) head++;
    let tail = 0;
    while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail)[2] === b.at(-1 - tail)[2]) tail++;
    const [x, y] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
    const wide = y.length + 1;
    const common = new Uint16Array((x.length + 1) * wide <= MOST_CELLS ? (x.length + 1) * wide : 0); // longer ones stay unaligned
    if (common.length)
      for (let i = x.length - 1; i >= 0; i--)
        for (let j = y.length - 1; j >= 0; j--)
          common[i * wide + j] = x[i][2] === y[j][2] ? common[(i + 1) * wide + j + 1] + 1 : Math.max(common[(i + 1) * wide + j], common[i * wide + j + 1]);
    const rows = a.slice(0, head).map((line, i) => [line, b[i]]);
    let [gone, added] = [[], []];
    const flush = () => {
      for (let k = 0; k < Math.max(gone.length, added.length); k++) rows.push([gone[k] ?? null, added[k] ?? null]);
      [gone, added] = [[], []];
    };
    let [i, j] = [0, 0];
    while (i < x.length || j < y.length) {
      if (i < x.length && j < y.length && x[i][2] === y[j][2] && common.length) {
        flush();
        rows.push([x[i++], y[j++]]);
      } else if (j >= y.length || (i < x.length && common[(i + 1) * wide + j] >= common[i * wide + j + 1])) gone.push(x[i++]);
      else added.push(y[j++]);
    }
    flush();
    return [...rows, ...a.slice(a.length - tail).map((line, k) => [line, b[b.length - tail + k]])];
  }

  document.addEventListener("flashcore", () => {
    ({ state, all } = window.flashcore);
    window.flashcore.add(async (root) => {
      for (const box of all("[data-compare]", root)) window.comparison = new Comparison(box, await window.flashcore.data(box.dataset.compare));
    });
  });
})();
