// The map's chart: points over two parameters, colored by winner or by a figure; the other parameters filter by sliders.
"use strict";
(() => {
  const COLORS = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#edc948", "#ff9da7", "#9c755f", "#86909a"];
  const color = (i) => COLORS[i % COLORS.length];
  const NAMES = { margin: "margin to the second", dispatched: "regret of the dispatcher", share: "share of the floor", over_reference: "winner over the fastest reference" };
  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const short = (x) => (x === null || x === undefined ? "unmeasured" : Number(x.toPrecision(4)).toString());
  const regret = (p) => (p.dispatched === null ? "unmeasured" : p.regret);
  const first = (times) => Object.entries(times)[0];
  const values = (points, name) => [...new Set(points.map((p) => p.params[name]))].sort((a, b) => (typeof a === "number" ? a - b : a < b ? -1 : 1));
  const number = (points, name) => points.every((p) => typeof p.params[name] === "number");
  const log = (list) => list[0] > 0 && list.at(-1) / list[0] >= 16;
  const form = (plot) => document.querySelector(`form[data-for="${plot.id}"]`);

  function prepare(plot, points) {
    const choices = form(plot);
    if (choices.dataset.ready) return choices;
    choices.dataset.ready = "1";
    const names = Object.keys(points[0].params).filter((n) => values(points, n).length > 1);
    const numbers = names.filter((n) => number(points, n)).sort((a, b) => values(points, b).length - values(points, a).length);
    for (const axis of ["x", "y"]) {
      const select = choices.elements[axis];
      select.innerHTML = names.map((n) => `<option>${escaped(n)}</option>`).join("");
      select.value = numbers[axis === "x" ? 0 : 1] ?? names[axis === "x" ? 0 : 1] ?? names[0] ?? "";
    }
    const sliders = choices.querySelector(".sliders");
    sliders.innerHTML = names.map((n) => {
      const most = values(points, n).length;
      const at = n === "problem" ? 1 : 0; // a variant is of one problem
      return `<label data-param="${escaped(n)}">${escaped(n)} <input type="range" min="0" max="${most}" value="${at}" name="only-${escaped(n)}"> <output>all</output></label> &emsp;`;
    }).join("");
    const redraw = () => window.charts.draw(plot);
    choices.addEventListener("input", redraw);
    choices.addEventListener("change", redraw);
    plot.addEventListener("drawn", () => plot.on("plotly_click", (event) => tell(points.find((p) => p.name === event.points[0].customdata))), { once: true });
    return choices;
  }
  function tell(point) {
    const rows = (times) => Object.entries(times).map(([n, us]) => `<tr><td>${escaped(n)}</td><td class="number">${short(us)}</td></tr>`).join("");
    const link = document.getElementById(point.name)?.querySelector("a")?.getAttribute("href");
    document.querySelector(".map-point").innerHTML = `<h2>${escaped(point.name)}</h2><p>${escaped(Object.entries(point.params).map(([k, v]) => `${k}=${v}`).join(", "))}; regret ${regret(point)}${link ? `; <a href="${escaped(link)}">the fastest variant's page</a>` : ""}</p><table><thead><tr><th scope="col">variant or reference</th><th scope="col">µs</th></tr></thead><tbody>${rows(point.times)}${rows(point.references)}</tbody></table>`;
  }
  // Each place's winner among its five nearest points, as a background; none over categories.
  function regions(plot, placed, across, up, winner, all) {
    if (across.type === "category" || up.type === "category" || placed.length < 5) return [];
    const scaled = (axis, at) => (axis.type === "log" ? Math.log(at) : at);
    const steps = (axis, key, count) => {
      const of = placed.map((p) => scaled(axis, p[key])), low = Math.min(...of), span = Math.max(...of) - low || 1;
      return Array.from({ length: count }, (_, i) => low - 0.02 * span + (1.04 * span * i) / (count - 1));
    };
    const [xs, ys] = [steps(across, "px", Math.ceil((plot.clientWidth || 800) / 12.5)), steps(up, "py", 40)];
    const spots = placed.map((p) => [scaled(across, p.px), scaled(up, p.py), winner(p)]);
    const [wide, high] = [xs.at(-1) - xs[0], ys.at(-1) - ys[0]];
    const won = (x, y) => {
      const near = spots.map(([a, b, name]) => [((a - x) / wide) ** 2 + ((b - y) / high) ** 2, name]).sort((a, b) => a[0] - b[0]).slice(0, 5);
      const votes = near.map(([, name]) => near.filter((n) => n[1] === name).length);
      return near[votes.indexOf(Math.max(...votes))][1];
    };
    const back = (axis, at) => (axis.type === "log" ? Math.exp(at) : at);
    const cells = ys.flatMap((y) => xs.map((x) => ({ x: back(across, x), y: back(up, y), color: color(all.indexOf(won(x, y))) })));
    return [{
      type: "scatter", mode: "markers", x: cells.map((c) => c.x), y: cells.map((c) => c.y), hoverinfo: "skip", showlegend: false,
      marker: { symbol: "square", size: 11, opacity: 0.18, color: cells.map((c) => c.color), line: { width: 0 } },
    }];
  }
  function build(plot, source) {
    const choices = prepare(plot, source.points);
    const chosen = (name) => choices.elements[name].value;
    const [x, y, layer] = [chosen("x"), chosen("y"), chosen("layer")];
    let points = source.points;
    for (const label of choices.querySelectorAll("[data-param]")) {
      const name = label.dataset.param;
      label.hidden = name === x || name === y;
      const at = Number(label.querySelector("input").value);
      const of = values(source.points, name);
      label.querySelector("output").textContent = at && !label.hidden ? of[at - 1] : "all";
      if (at && !label.hidden) points = points.filter((p) => p.params[name] === of[at - 1]);
    }
    const axis = (name) => {
      const of = values(source.points, name);
      const numeric = number(source.points, name);
      return { title: { text: escaped(name), standoff: 6 }, automargin: true, zeroline: false, type: numeric ? (log(of) ? "log" : "linear") : "category", ...(numeric && of.length < 6 ? { tickvals: of } : {}) };
    };
    const [across, up] = [axis(x), axis(y)];
    // Points at the same place are moved apart, by a fixed amount for each.
    const seen = new Map();
    const moved = (p, name, scale, turn) => {
      if (scale.type === "category") return p.params[name];
      const angle = turn * 2.4, by = 0.014 * Math.sqrt(turn) * (name === x ? Math.cos(angle) : Math.sin(angle));
      const of = values(source.points, name);
      const span = scale.type === "log" ? Math.log(of.at(-1) / of[0]) : of.at(-1) - of[0];
      return scale.type === "log" ? p.params[name] * Math.exp(by * span) : p.params[name] + by * span;
    };
    const placed = points.map((p) => {
      const key = `${p.params[x]} ${p.params[y]}`;
      const turn = seen.get(key) ?? 0;
      seen.set(key, turn + 1);
      return { ...p, px: moved(p, x, across, turn), py: moved(p, y, up, turn), better: p.over_reference > 1 };
    });
    const winner = (p) => (choices.elements.references.checked && p.over_reference > 1 ? first(p.references)[0] : p.best);
    const text = (p) => `<b>${escaped(winner(p))}</b><br>${escaped(Object.entries(p.params).map(([k, v]) => `${k}=${v}`).join(", "))}<br>${Object.entries(p.times).slice(0, 3).map(([n, us]) => `${escaped(n)} ${short(us)} µs`).join("<br>")}${first(p.references) ? `<br>${escaped(first(p.references)[0])} ${short(first(p.references)[1])} µs` : ""}<br>regret ${regret(p)}, of the floor ${short(p.share)}`;
    const size = (p) => 8 + 14 * Math.min(1, ((p.margin ?? 1) - 1) / 0.5);
    const trace = (list, marker, name) => ({
      type: "scatter", mode: "markers", name, x: list.map((p) => p.px), y: list.map((p) => p.py), customdata: list.map((p) => p.name),
      text: list.map(text), hovertemplate: "%{text}<extra></extra>",
      marker: { symbol: list.map((p) => (choices.elements.references.checked && p.better ? "diamond" : "circle")), size: list.map(size), line: { width: 1, color: "@bg" }, ...marker },
    });
    const layout = { xaxis: across, yaxis: up, hovermode: "closest", showlegend: layer === "best", legend: { orientation: "h", y: 1.02, yanchor: "bottom", itemsizing: "constant" }, margin: { t: 60 } };
    if (layer === "best") {
      // By points won, whatever the other sliders show: the first have different colors, and keep them.
      const wins = source.points.filter((p) => p.params.problem === points[0]?.params.problem).map(winner);
      const all = [...new Set(wins)].sort((a, b) => wins.filter((n) => n === b).length - wins.filter((n) => n === a).length || (a < b ? -1 : 1));
      const names = [...new Set(placed.map(winner))].sort();
      return { data: [...regions(plot, placed, across, up, winner, all), ...names.map((n) => trace(placed.filter((p) => winner(p) === n), { color: color(all.indexOf(n)) }, n))], layout };
    }
    const timed = placed.filter((p) => p[layer] !== null);
    const from = layer === "share" ? 0 : layer === "over_reference" ? 0.5 : 1;
    const to = layer === "share" ? 1 : layer === "dispatched" ? Math.max(1.05, ...timed.map((p) => p[layer])) : 1.5;
    const scale = layer === "share" ? "Viridis" : layer === "over_reference" ? "RdBu" : "Bluered";
    return { data: [trace(timed, { color: timed.map((p) => p[layer]), colorscale: scale, cmin: from, cmax: to, colorbar: { title: { text: NAMES[layer], side: "right" } } }, NAMES[layer])], layout };
  }
  window.charts.kinds.map = build;
})();
