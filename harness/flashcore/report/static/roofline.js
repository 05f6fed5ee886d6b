// The roofline chart: a slope per memory level, marks of one level, the focus at all levels, and labels that never overlap.
"use strict";
(() => {
  let state, all; // from report.js, once it is loaded
  const SYMBOLS = { variant: "circle", baseline: "square", peer: "diamond" };
  const DASHES = { datasheet: "dash", "at clock seen": "solid", measured: "dot" };
  const NAMES = { dram: "DRAM", l2: "L2", l1: "L1" };
  const MOST_NAMES = 5; // in a sentence
  const short = (x) => Number(x.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
  const escaped = (text) => text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);

  const points = (given) => given.table.slice(1).map(([v, k, , level, by, , bytes, time, x, y, regime, ...energy], i) => ({
    i, v, k: k ?? "", level, by, x, y, regime, time, energy: energy.map((value, n) => value && `${short(value)} ${given.table[0][11 + n]}`).filter(Boolean), gbps: bytes / time / 1e3,
    role: given.roles[v], share: given.shares[i], roofs: given.over[i].map((r) => given.roofs[r]), measured: given.measured[i].map((r) => given.roofs[r]), faults: given.faults[i] ?? [],
  }));
  // A roof's TFLOP/s at an intensity, and the lower of a mark's two roofs, to which its share is relative.
  const height = (roof, x) => (roof.compute ? roof.value : (roof.value * x) / 1e3);
  const ceiling = (p, x = p.x) => Math.min(...p.roofs.map((r) => height(r, x)));
  const cited = (p) => p.roofs.find((r) => height(r, p.x) === ceiling(p));
  const called = (resource) => NAMES[resource] ?? resource.replace("_", " ");
  const bounded = (p) => p.roofs.some((r) => !r.compute); // has a bandwidth roof
  const share = (p) => (p.share === null ? "no known roof" : `${p.share} % of ${called(cited(p).resource)}: ${cited(p).label}`)
    + (bounded(p) ? "" : `; the bandwidth of ${NAMES[p.level]} is unmeasured`);
  const tell = (p) => [
    `${p.v}${p.k ? ` › ${p.k}` : ""}: ${short(p.y)} TFLOP/s at ${short(p.x)} FLOP/B of ${NAMES[p.level]}`,
    share(p),
    `${short(p.time)} µs, ${short(p.gbps)} GB/s, FLOPs by ${p.by}`,
    ...(p.energy.length ? [p.energy.join(", ")] : []),
    ...p.faults.map((f) => `impossible: ${f}`),
  ];

  // The roofs to draw: the focus's, and the highest of other resources and origins. A mark above all of these, because its
  // clock was higher, adds its roofs.
  function roofsOf(given, focused, shown) {
    const chosen = new Set(focused.flatMap((p) => [...p.roofs, ...p.measured]));
    const like = (r) => [...chosen].filter((c) => c.resource === r.resource && c.origin === r.origin);
    for (const r of [...given.roofs].sort((a, b) => b.value - a.value)) if (!like(r).length) chosen.add(r);
    for (const p of shown)
      for (const r of p.roofs) if (!p.faults.length && like(r).every((c) => height(c, p.x) < p.y)) chosen.add(r);
    return given.roofs.filter((r) => chosen.has(r));
  }
  function choices(plot) {
    const form = document.querySelector(`form[data-for="${plot.id}"]`);
    const level = form?.elements.level?.value || "dram";
    return { form, level, kernels: form?.elements.kernels?.checked, formula: form?.elements.formula?.checked };
  }
  // Labeled variants and the reasons. The default focus is the winner; without times, the first point.
  function named(given) {
    const { winner, parent, baseline, peer } = given.named;
    const focus = state.get("focus") || winner || given.table[1][0];
    const names = new Map();
    for (const [name, why] of [[focus, ""], [winner, "winner"], [parent, "its parent"], [baseline, "baseline"], [peer, "fastest reference"]])
      if (name && !names.has(name)) names.set(name, name === winner ? "winner" : why);
    return { focus, names };
  }
  function there(given) {
    const names = [...new Set(given.table.slice(1).map(([v]) => v))];
    const more = names.length - MOST_NAMES;
    return names.slice(0, MOST_NAMES).join(", ") + (more > 0 ? ` and ${more} more` : "") + (names.length > 1 ? " have" : " has one");
  }
  const log = Math.log10;
  function build(plot, given) {
    const { level, kernels, formula } = choices(plot);
    const every = points(given);
    const by = every.some((p) => p.by === "hardware") ? "hardware" : "formula";
    const cases = every.filter((p) => !p.k && p.by === by);
    const here = every.filter((p) => p.level === level && (kernels || !p.k) && (formula || p.by === by));
    const { focus, names } = named(given);
    const linked = cases.filter((p) => p.v === focus);
    const roofs = roofsOf(given, linked, here);
    const slopes = roofs.filter((r) => !r.compute);
    const flats = roofs.filter((r) => r.compute);
    const ridges = flats.flatMap((c) => slopes.map((s) => (c.value / s.value) * 1e3));
    const xs = [...here.map((p) => p.x), ...linked.map((p) => p.x), ...ridges];
    const ys = [...here.map((p) => p.y), ...flats.map((r) => r.value)];
    const across = [log(Math.min(...xs)) - 0.3, log(Math.max(...xs)) + 0.45];
    const up = [log(Math.min(...ys)) - 0.25, log(Math.max(...ys)) + 0.3];
    const [left, right] = across.map((x) => 10 ** x);
    const narrow = plot.clientWidth < 520;
    const margin = { l: narrow ? 52 : 64, r: 8, t: 30, b: 46 };
    const frame = { across, up, width: plot.clientWidth - margin.l - margin.r, height: plot.clientHeight - margin.t - margin.b };
    const top = Math.max(...flats.map((r) => r.value), -Infinity);
    const line = (roof, [x0, x1]) => ({
      type: "scatter", mode: "lines", x: [x0, x1], y: [height(roof, x0), height(roof, x1)], hoverinfo: "skip", name: `${called(roof.resource)}: ${roof.label}`,
      line: { color: roof.compute ? "@soft" : `@${roof.resource}`, width: roof.compute || roof.resource === level ? 1.6 : 1, dash: DASHES[roof.origin] },
    });
    const span = (r) => (r.compute
      ? [slopes.length ? Math.max(left, (r.value / Math.max(...slopes.map((s) => s.value))) * 1e3) : left, right]
      : [left, Number.isFinite(top) ? Math.min(right, (top / r.value) * 1e3) : right]);
    const way = given.way.map((v) => cases.find((p) => p.v === v && p.level === level)).filter(Boolean);
    const marks = spread([...new Set([...here, ...linked])], (p) => (p.k ? 6 : names.has(p.v) ? 11 : 7), frame);
    // For a mark: the ladder's path, the distance to its roof, and that roof, which may be at another clock.
    const pointed = (given, path) => [
      { x: path ? way.map((p) => p.at) : [], y: path ? way.map((p) => p.y) : [] },
      ...["dram", "l2", "l1"].map((name) => gap(given.filter((p) => p.level === name && bounded(p) && p.y < ceiling(p)))),
      roofline(given.length === 1 ? given[0] : null, [left, right]),
    ];
    const shown = pointed(linked, Boolean(state.get("focus")));
    plot.pointed = (i) => (i === undefined ? shown : pointed([every[i]], true));
    const data = [
      { mode: "lines", line: { color: "@variant", width: 1.2 }, opacity: 0.7, name: "path" },
      ...["dram", "l2", "l1"].map((name) => ({ mode: "lines", fill: "toself", fillcolor: `@${name}`, opacity: 0.22, line: { width: 0 }, name: "gap" })),
      { mode: "lines", line: { color: "@text", width: 1 }, name: "roof" },
    ].map((trace, i) => ({ type: "scatter", hoverinfo: "skip", ...trace, ...shown[i] }));
    data.push(...slopes.map((r) => line(r, span(r))), ...flats.map((r) => line(r, span(r))));
    data.push({ type: "scatter", mode: "lines+markers", x: linked.map((p) => p.at), y: linked.map((p) => p.y), hoverinfo: "skip",
      line: { color: "@text", width: 1, dash: "dot" }, marker: { symbol: "circle-open", size: 13, color: "@text" } });
    for (const role of ["variant", "baseline", "peer"]) {
      const same = marks.filter((p) => p.role === role);
      if (!same.length) continue;
      data.push({
        type: "scatter", mode: "markers", x: same.map((p) => p.at), y: same.map((p) => p.y),
        marker: {
          color: same.map((p) => (p.faults.length ? "@fault" : `@${p.level}`)),
          symbol: same.map((p) => (p.faults.length ? "x" : SYMBOLS[role]) + (p.by === by ? "" : "-open")),
          size: same.map((p) => p.size), line: { color: "@bg", width: 0.7 },
          opacity: same.map((p) => (names.has(p.v) && !p.k ? 1 : 0.75)),
        },
        customdata: same.map((p) => p.i), text: same.map((p) => tell(p).map(escaped).join("<br>")), hovertemplate: "%{text}<extra></extra>",
      });
    }
    // Labels with their anchors in data coordinates, in order of importance.
    const words = [];
    for (const [name, why] of names) {
      const p = cases.find((q) => q.v === name && q.level === level);
      if (p) words.push({ x: p.at, y: p.y, text: why ? `${name} (${why})` : name, bold: name === focus });
    }
    for (const p of linked) if (p.level !== level) words.push({ x: p.at, y: p.y, text: NAMES[p.level], color: p.level });
    const label = (roofs) => `${called(roofs[0].resource)}: ${roofs.map((r) => r.label).join(narrow ? "\n" : "; ")}`;
    // One label per resource: above its highest flat roof at the right, below its lowest slope at the left.
    for (const roofs of grouped(flats)) words.push({ x: right / 1.001, y: Math.max(...roofs.map((r) => r.value)), text: label(roofs), above: true });
    for (const roofs of grouped(slopes)) {
      const lowest = Math.min(...roofs.map((r) => r.value));
      // Where the slope enters the view; the chart library drops labels exactly on the edge.
      const x = 1.001 * Math.max(left, (10 ** up[0] * 1e3) / lowest);
      const { resource } = roofs[0];
      words.push({ x, y: (x * lowest) / 1e3, text: narrow && resource !== level ? NAMES[resource] : label(roofs), color: resource, below: true });
    }
    const lines = [...flats.map((r) => [...span(r), r.value]), [Math.min(...linked.map((p) => p.x)), Math.max(...linked.map((p) => p.x)), linked[0]?.y]];
    return {
      data,
      layout: {
        xaxis: { ...axis("FLOP per byte (log)", across, frame.width), tickangle: 0 },
        yaxis: axis("TFLOP/s (log)", up),
        title: { text: here[0]?.regime ?? "", font: { size: 12 }, x: 0.005, xanchor: "left", y: 0.995, yanchor: "top" },
        annotations: place(words, marks, lines, slopes.map((r) => [...span(r), r]), frame, narrow ? 10.5 : 12),
        showlegend: false, hovermode: "closest", margin, dragmode: false,
      },
    };
  }
  const grouped = (given) => [...new Set(given.map((r) => r.resource))].map((name) => given.filter((r) => r.resource === name));
  // A band from each mark up to its roof, as wide as a mark.
  function gap(given) {
    const [x, y] = [[], []];
    for (const p of given) {
      const [a, b] = [p.at / 1.03, p.at * 1.03];
      x.push(a, a, b, b, a, null);
      y.push(p.y, ceiling(p, a), ceiling(p, b), p.y, p.y, null);
    }
    return { x, y };
  }
  function roofline(p, [left, right]) {
    const [flat, slope] = [p?.roofs.find((r) => r.compute), p?.roofs.find((r) => !r.compute)];
    const x = !p?.roofs.length ? [] : flat && slope ? [left, (flat.value / slope.value) * 1e3, right].sort((a, b) => a - b) : [left, right];
    return { x, y: x.map((at) => ceiling(p, at)) };
  }
  // Moves overlapping marks apart horizontally, but never above their roof; `at` is a mark's displayed intensity.
  function spread(given, size, { across, up, width, height: tall }) {
    const px = (x) => ((log(x) - across[0]) / (across[1] - across[0])) * width;
    const placed = [];
    for (const p of [...given].sort((a, b) => size(b) - size(a) || b.y - a.y)) {
      p.size = size(p);
      const y = (1 - (log(p.y) - up[0]) / (up[1] - up[0])) * tall;
      const near = placed.filter((q) => Math.abs(q.py - y) < (q.size + p.size) / 2 + 1);
      for (let step = 0; step < 400; step++) {
        const x = px(p.x) + (step % 2 ? 1 : -1) * Math.ceil(step / 2) * 2;
        p.at = 10 ** (across[0] + (x / width) * (across[1] - across[0]));
        const inside = x > 6 && x < width - 6 && (p.faults.length || p.y <= ceiling(p, p.at) || p.y > ceiling(p));
        if (!step || inside) {
          if (near.every((q) => Math.hypot(q.px - x, q.py - y) > (q.size + p.size) / 2 + 1)) break;
        }
        p.at = p.x;
      }
      placed.push({ size: p.size, px: px(p.at), py: y });
    }
    return given;
  }
  // A logarithmic axis; given its width in px, omits tick labels that would overlap.
  function axis(title, [from, to], width = Infinity) {
    let ticks = [];
    for (const steps of [[1], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9]]) {
      ticks = [];
      for (let d = Math.floor(from); d <= Math.ceil(to); d++)
        for (const s of steps) if (log(s) + d >= from && log(s) + d <= to) ticks.push(s * 10 ** d);
      if (ticks.length >= 3) break;
    }
    let end = -Infinity;
    const text = ticks.map((tick) => {
      const words = tick >= 1000 ? tick.toLocaleString("en") : String(Number(tick.toPrecision(3)));
      const [middle, half] = [((log(tick) - from) / (to - from)) * width, words.length * 3.5 + 3];
      if (middle - half < end) return "";
      end = middle + half;
      return words;
    });
    return { title: { text: title, standoff: 4 }, type: "log", range: [from, to], tickvals: ticks, ticktext: text,
      automargin: false, zeroline: false, fixedrange: true };
  }
  // Places labels so that they do not overlap each other and, if possible, no mark or line: next to their point, or farther
  // away with a line to it.
  function place(words, marks, lines, slopes, { across, up, width, height: tall }, size) {
    const px = (x) => ((log(x) - across[0]) / (across[1] - across[0])) * width;
    const py = (y) => (1 - (log(y) - up[0]) / (up[1] - up[0])) * tall;
    const pen = document.createElement("canvas").getContext("2d");
    const family = getComputedStyle(document.body).fontFamily;
    const soft = marks.map((p) => ({ l: px(p.at) - 5, r: px(p.at) + 5, t: py(p.y) - 5, b: py(p.y) + 5 }));
    for (const [from, to, y] of lines) if (y) soft.push({ l: px(from), r: px(to), t: py(y) - 2, b: py(y) + 2 });
    for (const [from, to, r] of slopes)
      for (let x = from; x < to; x *= 1.04) soft.push({ l: px(x) - 3, r: px(x) + 3, t: py(height(r, x)) - 4, b: py(height(r, x)) + 4 });
    const taken = [];
    const free = (a, others) => !others.some((b) => a.l < b.r && b.l < a.r && a.t < b.b && b.t < a.b);
    const inside = (a) => a.l >= 0 && a.r <= width && a.t >= -4 && a.b <= tall;
    const placed = [];
    // Roofs first, since they have the fewest possible places.
    for (const word of [...words].sort((a, b) => Boolean(b.above || b.below) - Boolean(a.above || a.below))) {
      pen.font = `${word.bold ? 600 : 400} ${size}px ${family}`;
      const rows = word.text.split("\n");
      const w = Math.max(...rows.map((row) => pen.measureText(row).width)) + 6;
      const h = rows.length * size * 1.3 + 2;
      const [x, y] = [px(word.x), py(word.y)];
      const offsets = [];
      if (word.above) for (let d = 0; d < 8; d++) offsets.push([-w, -h - 1 - d * h], [-w, 3 + d * h]);
      else if (word.below) {
        for (let d = 0; d < 3; d++) offsets.push([24, 4 + d * h]);
        // Farther up along the slope, which rises one decade per decade.
        const rise = tall / (up[1] - up[0]) / (width / (across[1] - across[0]));
        for (const t of [30, 60, 90, 130, 180, 240, 300, 360, 420]) offsets.push([t + 16, -t * rise], [t - w - 12, -t * rise - h]);
      }
      else
        for (const far of [0, 1, 2, 3, 4, 6, 8, 10])
          offsets.push([8 + far * 6, -h / 2 - far * h], [8 + far * 6, -h / 2 + far * h], [-w - 8 - far * 6, -h / 2 - far * h],
            [-w - 8 - far * 6, -h / 2 + far * h], [-w / 2, -h - 8 - far * h], [-w / 2, 8 + far * h]);
      const boxes = offsets.map(([dx, dy]) => {
        const l = Math.max(0, Math.min(x + dx, width - w));
        return { l, r: l + w, t: y + dy, b: y + dy + h };
      });
      // Places are ordered by distance.
      const cost = (a) => soft.filter((b) => !free(a, [b])).length + (word.above || word.below ? 0.5 : 0.05) * boxes.indexOf(a);
      const box = boxes.filter((a) => inside(a) && free(a, taken)).reduce((best, a) => (best && cost(best) <= cost(a) ? best : a), null);
      if (!box) continue;
      taken.push(box);
      const [cx, cy] = [(box.l + box.r) / 2, (box.t + box.b) / 2];
      const apart = !word.above && !word.below && (Math.abs(cy - y) > h || Math.min(Math.abs(box.l - x), Math.abs(box.r - x)) > 16);
      placed.push({
        xref: "x", yref: "y", x: log(word.x), y: log(word.y), ax: cx - x, ay: cy - y, axref: "pixel", ayref: "pixel",
        showarrow: true, arrowhead: 0, arrowwidth: 0.7, arrowcolor: apart ? "@soft" : "rgba(0,0,0,0)", standoff: 6,
        text: (word.bold ? "<b>" : "") + rows.map(escaped).join("<br>") + (word.bold ? "</b>" : ""), font: { size, color: word.color ? `@${word.color}` : undefined }, borderpad: 0, align: "right",
      });
    }
    return placed;
  }
  window.charts.kinds.roofline = build;

  function enliven(root) {
    for (const form of all("form.roofline-choices", root)) {
      const plot = document.getElementById(form.dataset.for);
      const given = JSON.parse(document.getElementById(plot.dataset.figure).textContent);
      const output = document.querySelector(`output[for="${plot.id}"]`);
      const say = () => {
        const { focus } = named(given);
        const focused = points(given).filter((p) => p.v === focus && !p.k);
        const by = focused.some((p) => p.by === "hardware") ? "hardware" : "formula";
        const shown = focused.filter((p) => p.by === by);
        const each = shown.map((p) => `${short(p.x)} FLOP/B of ${NAMES[p.level]} (${short(p.gbps)} GB/s, ${share(p)})`);
        const faults = [...new Set(shown.flatMap((p) => p.faults))].map((f) => `; impossible: ${f}`).join("");
        output.textContent = shown.length
          ? `${focus}: ${short(shown[0].y)} TFLOP/s, ${short(shown[0].time)} µs, FLOPs by ${by}, at ${each.join(", ")}${faults}. `
          : `${focus} has no point here, but ${there(given)}. `;
      };
      const wanted = state.get("level");
      if (wanted && form.elements.level.length) form.elements.level.value = wanted;
      const take = () => {
        const focus = state.get("focus") ?? "";
        if (Array.from(form.elements.focus.options).some((o) => o.value === focus)) form.elements.focus.value = focus;
        say();
      };
      state.heard((changes) => {
        if (Object.keys(changes).length || form.elements.focus.value === (state.get("focus") ?? "")) return;
        take();
        if (plot.clientWidth) window.charts.draw(plot);
      });
      form.addEventListener("change", (event) => {
        const { name, value } = event.target;
        if (name === "focus" || name === "level") state.set({ [name]: value });
        window.charts.draw(plot);
        say();
      });
      plot.addEventListener("drawn", () => {
        const point = (i) => {
          const traces = plot.pointed(i);
          Plotly.restyle(plot, { x: traces.map((t) => t.x), y: traces.map((t) => t.y) }, traces.map((_, at) => at));
        };
        plot.on("plotly_hover", ({ points: [mark] }) => point(mark.customdata));
        plot.on("plotly_unhover", () => point());
      });
      form.addEventListener("submit", (event) => event.preventDefault());
      take();
    }
  }
  document.addEventListener("flashcore", () => {
    ({ state, all } = window.flashcore);
    window.flashcore.add(enliven);
  });
})();
