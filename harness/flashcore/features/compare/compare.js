// Draws the pair that is chosen: the conclusions and phrases of compare_page.py, its counters, stalls, phases and source.
// The choice is kept in the address.
"use strict";
(() => {
  let state, all; // report.js's, once it is there
  const REGIMES = ["isolated", "back_to_back", "cold"];
  const MOST_CELLS = 4e6; // of the table by which two sources are aligned
  const NEAR = 3; // lines shown around those that differ
  const esc = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  const words = (name) => name.replaceAll("_", " ");

  // --- numbers, as flashcore.model.text writes them ---
  function fixed(value, digits) {
    const [whole, rest] = value.toFixed(digits).split(".");
    return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest ? `.${rest}` : "");
  }
  function significant(value, digits = 4) {
    if (value === 0) return "0";
    const size = Math.floor(Math.log10(Math.abs(value)));
    if (size < -3) return value.toExponential(Math.max(digits - 2, 1)).replace(/e([+-])(\d)$/, "e$10$2");
    return fixed(value, Math.max(0, digits - 1 - size));
  }
  function quantity(value, unit) {
    const [shown, scale] = { ns: ["µs", 1e3], Hz: ["MHz", 1e6], 1: ["", 1], pct: ["%", 1], us: ["µs", 1], C: ["°C", 1] }[unit] ?? [unit, 1];
    const v = value / scale;
    if (shown === "%") return [v === 0 || Math.abs(v) >= 0.05 ? fixed(v, 1) : significant(v, 2), shown];
    if (shown === "MHz" || shown === "°C") return [fixed(v, 0), shown];
    if (shown === "µs" || shown === "TFLOP/s") return [significant(v, shown === "µs" ? 4 : 3), shown];
    for (const [step, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]])
      if (Math.abs(v) >= step) return [significant(v / step), prefix + shown];
    return [Number.isInteger(v) ? fixed(v, 0) : significant(v), shown];
  }
  const interval = ({ low, high }) => `[${significant(low, 3)}, ${significant(high, 3)}]`;

  // --- cells ---
  const missing = (why) => `<td class="missing" title="${esc(why || "no reason was recorded")}">unmeasured</td>`;
  const number = (text, unit = "") => `<td class="number">${text}${unit ? `<span class="unit"> ${unit}</span>` : ""}</td>`;
  const name = (text, why = "") => `<th scope="row" class="name"${why ? ` title="${esc(why)}"` : ""}>${esc(text)}</th>`;
  const breaks = (text) => text.split("_").map(esc).join("_<wbr>");
  const heads = (...texts) => `<thead><tr>${texts.map((t) => `<th scope="col">${t}</th>`).join("")}</tr></thead>`;
  const table = (kind, label, caption, inner) =>
    `<div class="scroll" tabindex="0" role="region" aria-label="${esc(label)}"><table class="${kind}"><caption>${caption}</caption>${inner}</table></div>`;

  class Comparison {
    constructor(box) {
      this.box = box;
      this.page = box.closest(".page");
      this.given = JSON.parse(document.getElementById(`${box.dataset.compare}-data`).textContent);
      this.labels = this.given.sides.map(([label]) => label);
      this.form = this.page.querySelector("form[data-pair]");
      const { focus, against } = this.form.elements;
      const option = (i) => `<option value="${esc(this.key(i))}">${esc(this.labels[i])}</option>`;
      const [own, other] = [true, false].map((own) =>
        [...this.labels.keys()].filter((i) => this.given.sides[i][2] === own).map(option).join(""));
      focus.innerHTML = own;
      against.innerHTML = other ? `<optgroup label="run ${esc(this.given.runs[1])}">${other}</optgroup><optgroup label="this run">${own}</optgroup>` : own;
      this.form.addEventListener("change", ({ target }) => state.set({ [target.name]: target.value }));
      this.form.addEventListener("submit", (event) => event.preventDefault());
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

    // --- what is compared: as the address has it, else as the page has it ---
    choose() {
      const { shapes, sides } = this.given;
      const asked = state.get("shape");
      this.name = asked in shapes ? asked : Object.keys(shapes)[0];
      this.shape = shapes[this.name];
      const place = (key) => sides.findIndex((_, i) => this.key(i) === state.get(key));
      let [focus, against] = [place("focus"), place("against")];
      if (focus < 0 || !sides[focus][2]) focus = this.shape.first?.[0] ?? 0;
      if (against < 0 || against === focus) {
        const [twin, kin] = sides[focus][3];
        const others = [twin, this.shape.rival, kin, ...Object.keys(this.shape.cases).map(Number)];
        const timed = (i) => i !== focus && Object.keys(this.shape.cases[i]?.t ?? {}).length;
        against = others.find(timed) ?? (focus ? 0 : Math.min(1, sides.length - 1));
      }
      [this.focus, this.against] = [focus, against];
      this.cases = [focus, against].map((i) => this.shape.cases[i]);
      this.across = sides[focus][2] !== sides[against][2];
      this.apart = this.across ? this.given.apart : "";
    }
    // How many times faster the focus is, the interval, and the code of what compare_page.py concluded.
    ratio(mode) {
      const { step } = this.given;
      for (const [j, ids, ends, named, codes] of this.shape.pairs[mode] ?? [])
        for (const [one, other] of [[this.focus, this.against], [this.against, this.focus]]) {
          const at = j === other ? ids.indexOf(one) : -1;
          if (at < 0) continue;
          const [was, now] = [j, one].map((i) => this.shape.cases[i].t[mode]);
          const value = named[at] ?? was / now;
          const [low, high] = [value * (1 - step * ends[2 * at]), value * (1 + step * ends[2 * at + 1])];
          const code = this.across ? "?" : codes[at];
          if (one === this.focus) return { value, low, high, code };
          return { value: 1 / value, low: 1 / high, high: 1 / low, code: { "+": "-", "-": "+" }[code] ?? code };
        }
      return null;
    }
    // The words of a conclusion: alone, between the names, of a regime.
    phrase(known, use, ratio = known.value) {
      return this.given.phrases[known?.code ?? "?"][use].replace("{}", significant(ratio, 3));
    }

    draw() {
      if (this.box.closest(".paged .page:not(.current)")) return;
      this.choose();
      const { form, focus, against, cases } = this;
      form.elements.focus.value = this.key(focus);
      form.elements.against.value = this.key(against);
      const known = {};
      const plain = {};
      for (const mode of [...REGIMES, "under_ncu"]) {
        const [now, was] = cases.map((c) => c?.t[mode]);
        if (!now || !was || this.apart) continue;
        known[mode] = this.ratio(mode);
        plain[mode] = known[mode]?.value ?? was / now;
      }
      const title = (i) => {
        const [label, variant, own] = this.given.sides[i];
        if (!own) return `<b>${esc(label)}</b>`;
        const at = document.body.classList.contains("single") ? `#${this.box.dataset.compare.replace(/compare$/, "")}variant-${variant}` : `${this.box.dataset.up}variant/${variant}.html`;
        return `<a href="${esc(at)}">${esc(label)}</a>`;
      };
      const mode = this.shape.rank in plain ? this.shape.rank : Object.keys(plain)[0];
      const [between, behind] = this.answer(mode, plain[mode], known[mode]);
      this.part("answer").innerHTML = `${title(focus)} ${between} ${title(against)}${behind}.`;
      const odd = this.contradiction(known);
      this.part("contradiction").hidden = !odd;
      this.part("contradiction").lastElementChild.textContent = odd;
      const notes = this.part("across");
      if (notes) notes.hidden = !this.across;
      this.part("same").hidden = !cases[0]?.code || cases[0].code !== cases[1]?.code;
      this.part("held").innerHTML = [focus, against].map((i, at) => `<dt>${esc(this.labels[i])}</dt><dd>${
        cases[at]?.held ? `limited by ${esc(cases[at].held)}` : "the limiter is unmeasured"}</dd>`).join("");
      this.part("shape").textContent = this.name;
      for (const [part, i] of [["before", against], ["after", focus]]) this.part(part).innerHTML = breaks(this.labels[i]);
      this.part("times").innerHTML = [...REGIMES, "under_ncu"].map((m) => this.time(m, plain[m], known[m])).join("");
      this.part("counters").innerHTML = this.counters();
      this.part("charts").innerHTML = this.phases();
      this.part("source").innerHTML = `<h2>Source <span class="detail">lines that machine code was made of</span></h2>${this.source()}`;
    }
    answer(mode, ratio, known) {
      if (this.apart) return ["and", ": their times are not compared"];
      if (!ratio) return ["and", ": no regime has a time of both that can be compared"];
      const tail = `, ${words(mode)}, ${known ? `95\u00a0% ${interval(known)}` : "no interval"}`;
      return [this.phrase(known, 1, ratio), this.across ? `${tail}; times of two runs are not judged` : tail];
    }
    noInterval(mode) {
      if (mode === "under_ncu") return "one launch each";
      const [[run, gpu], [otherRun, otherGpu]] = this.cases.map((c) => this.given.places[c.at]);
      const apart = run !== otherRun ? "runs" : gpu && otherGpu && gpu !== otherGpu ? "gpus" : "rounds";
      return this.given.no_interval[apart];
    }
    contradiction(known) {
      const { focus, against } = this;
      const { [`${focus} ${against}`]: modes, [`${against} ${focus}`]: turned } = this.shape.contradictions;
      const told = (modes ?? turned?.toReversed())?.map((m) => `${this.phrase(known[m], 2)} ${words(m)} ${interval(known[m])}`);
      return told ? `The regimes contradict each other: ${told.join(", but ")}.` : "";
    }
    time(mode, ratio, known) {
      const { apart } = this;
      const row = [name(words(mode))];
      for (const own of this.cases.toReversed()) {
        const time = own?.t[mode];
        row.push(time ? number(significant(time)) : missing(own ? own.why[mode] : "it does not run on this shape"));
      }
      if (!ratio) row.push(missing(apart || "one of the times is missing"), missing(apart || "no ratio"), "<td>–</td>");
      else {
        row.push(number(`${significant(ratio, 3)} ×`), known ? `<td>${interval(known)}</td>` : missing(this.noInterval(mode)));
        row.push(`<td>${this.phrase(known, 0, ratio)}</td>`);
      }
      return `<tr>${row.join("")}</tr>`;
    }

    // --- counters: those beyond noise first, the most moved on top, as flashcore.explain.diff.moved has them ---
    moves() {
      const found = this.given.facts.map(([fact, unit, better, why], i) => {
        const [now, was] = this.cases.map((c) => c?.c[i] ?? null);
        const most = unit === "pct" ? 100 : Math.max(Math.abs(was ?? 0), Math.abs(now ?? 0));
        const share = was === null || now === null || !most ? 0 : Math.abs(now - was) / most;
        return { fact, unit, better, why, now, was, share };
      });
      const there = found.filter((f) => f.now !== null || f.was !== null);
      const moved = there.filter((f) => f.share > this.given.moved);
      moved.sort((a, b) => b.share - a.share || (a.fact < b.fact ? -1 : 1));
      return [moved, there.filter((f) => f.share <= this.given.moved)];
    }
    // Each counter's difference from the middle of one axis: better to the left, worse to the right.
    counters() {
      const [moved, rest] = this.moves();
      if (!moved.length && !rest.length) return `<p class="note">Neither was profiled at ${esc(this.name)}.</p>`;
      const bound = `${fixed(100 * this.given.moved, 0)} %`;
      const alike = this.given.alike || !this.across; // of two shapes, less is not better
      const change = ({ better, now, was, share }) =>
        now === null || was === null ? "" : share <= this.given.moved ? "no difference" : !better || !alike ? "changed" : now < was === (better === "lower") ? "better" : "worse";
      const lean = (f) => {
        const [word, size] = [change(f), (50 * f.share).toFixed(1)];
        const left = word === "better" || (word !== "worse" && f.now < f.was);
        return `<td><span class="bar lean"><i class="${word.replace(" ", "-")}" style="left:${left ? 50 - size : 50}%;width:${size}%"></i><u style="left:50%"></u></span></td>`;
      };
      const row = (f) => {
        const [before, after] = [f.was, f.now].map((v) => (v === null ? missing(`not counted at ${this.name}`) : number(...quantity(v, f.unit))));
        const times = f.was && f.now ? number(`${significant(f.now / f.was, 3)} ×`) : `<td class="none">–</td>`;
        return `<tr>${name(f.fact, f.why)}${lean(f)}${before}${after}${times}<td>${change(f)}</td></tr>`;
      };
      const [was, now] = [this.against, this.focus].map((i) => this.labels[i]);
      const heading = heads("counter", `<span class="sides"><span>← better</span><span>worse →</span></span>`, breaks(was), breaks(now), "focus over against", "change");
      const none = `<tr><td colspan="6">No difference: no counter that both have moved by more than ${bound}.</td></tr>`;
      const caption = `Differences of more than ${bound}, the largest first: percentages in points, others as a share of the larger value; each half of the axis is 100 %. Gray is neither better nor worse: less to the left, more to the right. ncu counted with caches flushed.`;
      const draw = (rows, label, words) => table("num1 pair leans", label, words, `${heading}<tbody>${rows.map(row).join("") || none}</tbody>`);
      const picture = draw(moved, "Differences", caption);
      const others = draw(rest, "No difference", `Within ${bound} of each other, or counted of only one`);
      return picture + (rest.length ? `<details><summary>${rest.length} others</summary>${others}</details>` : "");
    }

    // --- phases of both ---
    phases() {
      const [now, was] = this.cases.map((c) => c?.p ?? {});
      const least = (row) => Math.max(row[1] ?? 0, row[2] ?? 0) >= 0.5;
      const rows = [...new Set([...Object.keys(was), ...Object.keys(now)])].map((key) => [key, was[key] ?? null, now[key] ?? null]).filter(least);
      if (!rows.length) return "";
      const [before, after] = [this.against, this.focus].map((i) => this.labels[i]);
      const bar = (v) => (v === null ? missing("it was not measured there") : `<td><span class="bar"><i style="width:${Math.min(v, 100)}%"></i></span> <b>${fixed(v, 1)} %</b></td>`);
      const body = rows.map(([key, a, b]) => `<tr><th scope="row">${esc(key)}</th>${bar(a)}${bar(b)}</tr>`).join("");
      const picture = `<table class="bars two"><caption>Where warps were found, % of the samples</caption>${heads("phase", breaks(before), breaks(after))}<tbody>${body}</tbody></table>`;
      return `<div><h3>Phases <span class="detail">${esc(this.name)}</span></h3>${picture}</div>`;
    }

    // --- source: what both have aligned, what differs beside each other ---
    source() {
      const [now, was] = [this.focus, this.against].map((i) => (this.given.sources[i] ?? []).map((at) => this.given.lines[at]));
      const lacking = [[now, this.focus], [was, this.against]].filter(([lines]) => !lines.length).map(([, i]) => this.labels[i]);
      if (lacking.length) return `<p class="note">No source was recorded of ${esc(lacking.join(" and "))}: it comes with a profile, and not of peers.</p>`;
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
    window.flashcore.add((root) => {
      for (const box of all("[data-compare]", root)) window.comparison = new Comparison(box);
    });
  });
})();
