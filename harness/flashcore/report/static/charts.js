// Draws plotly figures as they come into view, in the page's colors; saves them; clicks and keys lead to a mark's page.
"use strict";
(() => {
  const { all, make, unpacked, data: dataOf, add } = window.flashcore;
  const root = document.documentElement;
  const css = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const NARROW = 760, PRINTED = 700; // px
  const TOP = 16; // px above a chart whose menu is outside
  let printed = false;

  let library; // plotly, packed in window.library
  async function unpack() {
    const src = URL.createObjectURL(new Blob([await unpacked(window.library)], { type: "text/javascript" }));
    await new Promise((onload) => document.head.append(make("script", { src, onload })));
  }
  async function load(plot) {
    plot.source ??= await dataOf(plot.dataset.figure);
    await (library ??= unpack());
  }

  // A figure with the view that was chosen of its menu.
  function figure(plot) {
    const { data, layout } = window.charts.kinds[plot.source.kind]?.(plot, plot.source) ?? plot.source;
    const [menu] = layout.updatemenus ?? [];
    if (!menu) return { data, layout };
    const [{ visible }, view] = menu.buttons[plot.dataset.view ?? menu.active].args;
    return { data: data.map((t, i) => ({ ...t, visible: visible[i] })), layout: { ...layout, ...view, updatemenus: [] }, menu };
  }
  function composed(plot) {
    const { data: every, layout: given } = figure(plot);
    const data = every.filter((t) => t.visible !== false); // others would draw their axes
    const width = printed ? PRINTED : plot.clientWidth;
    const narrow = width < NARROW;
    const axis = { gridcolor: css("grid"), linecolor: css("line"), tickcolor: css("line"), zeroline: false };
    const layout = {
      ...given, width, height: given.height ?? plot.clientHeight,
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 11 : 12, color: css("text") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { ...given.hoverlabel, bgcolor: css("panel"), bordercolor: css("line"), font: { color: css("text") } },
      annotations: given.annotations?.map((a) => ({ ...a, bgcolor: a.bgcolor && `${css("bg")}b0` })),
    };
    for (const name of Object.keys(given).filter((n) => /^[xy]axis/.test(n))) layout[name] = { ...axis, ...given[name] };
    if (given.updatemenus) {
      layout.height = given.height - given.margin.t + TOP;
      layout.margin = { ...given.margin, t: TOP };
    }
    if (given.legend && narrow) {
      // Below the chart, which keeps its height: its labels are placed for it.
      const names = data.filter((t) => t.visible && t.showlegend !== false).map((t) => t.name.length);
      const room = 20 * Math.ceil(names.length / Math.max(1, Math.floor((width - 20) / (5.4 * Math.max(...names) + 48)))) + 14;
      layout.height += room;
      layout.margin = { ...layout.margin, l: 46, r: 62, b: given.margin.b + room };
      const [from, to] = given.xaxis.range ?? [0, 0];
      if (to > from) layout.xaxis.dtick = to - from > 2.5 ? 1 : "D2";
      layout.legend = { ...given.legend, orientation: "h", yref: "container", x: 0, y: 0, yanchor: "bottom", font: { size: 10.5 } };
    }
    return { data, layout };
  }
  async function draw(plot) {
    await load(plot);
    const { data, layout } = composed(plot);
    const first = !plot.dataset.drawn;
    plot.dataset.drawn = "true";
    plot.dataset.width = plot.clientWidth;
    plot.style.height = `${layout.height}px`;
    const config = { displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage"] };
    if (first && !printed) {
      // Axes and marks in separate tasks, since together they would block the page too long.
      await Plotly.newPlot(plot, [], { ...layout, annotations: [] }, config);
      await new Promise(requestAnimationFrame);
    }
    await Plotly.react(plot, data, layout, config);
    await kept(plot);
    if (first) prepare(plot);
  }
  // Moves labels back inside the axes.
  async function kept(plot) {
    const outer = plot.getBoundingClientRect();
    const { l, r } = plot._fullLayout._size;
    const frame = { left: outer.left + l, right: outer.right - r };
    const moved = {};
    for (const [i, label] of all("g.annotation", plot).entries()) {
      const box = label.querySelector(".annotation-text-g")?.getBoundingClientRect();
      const at = label.dataset.index ?? i;
      const { ax, showarrow, xanchor } = plot.layout.annotations[at];
      const over = box && showarrow !== false ? Math.max(0, box.right - frame.right + 2) || Math.min(0, box.left - frame.left - 2) : 0;
      if (!over) continue;
      const mark = (xanchor === "left" ? box.left : box.right) - ax;
      const room = over > 0 ? mark - frame.left : frame.right - mark; // on the other side of the mark
      const flipped = room > box.width + Math.abs(ax) + 4;
      Object.assign(moved, { [`annotations[${at}].ax`]: flipped ? -ax : ax - over });
      if (flipped) Object.assign(moved, { [`annotations[${at}].xanchor`]: over > 0 ? "right" : "left", [`annotations[${at}].align`]: over > 0 ? "right" : "left" });
    }
    if (Object.keys(moved).length) await Plotly.relayout(plot, moved);
  }

  // --- marks: a click or the Enter key opens a mark's page; arrow keys go from mark to mark ---
  function prepare(plot) {
    const open = (mark) => mark?.customdata && plot.dataset.href && location.assign(plot.dataset.href.replace("@", mark.customdata[0]).replace("~", mark.customdata[2]));
    let at = -1, tapped;
    plot.on("plotly_click", ({ points: [mark] }) => {
      const key = `${mark.curveNumber} ${mark.pointNumber}`;
      if (matchMedia("(hover: none)").matches && tapped !== key) tapped = key; // the first tap shows its figures
      else open(mark);
    });
    plot.addEventListener("keydown", (event) => {
      const marks = plot.data.flatMap((t, curveNumber) => (t.visible === true && t.customdata ? t.customdata.map((customdata, pointNumber) => ({ curveNumber, pointNumber, customdata, x: t.x[pointNumber], text: t.text[pointNumber] })) : []));
      marks.sort((a, b) => a.x - b.x);
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Enter") open(marks[at]);
      if (!step || !marks.length) return;
      event.preventDefault();
      at = (at + step + marks.length) % marks.length;
      Plotly.Fx.hover(plot, [{ curveNumber: marks[at].curveNumber, pointNumber: marks[at].pointNumber }]);
      plot.ariaLabel = marks[at].text.replaceAll("<br>", "; ").replace(/<[^>]*>/g, "");
    });
    plot.dispatchEvent(new Event("drawn"));
  }
  function views(plot) {
    const { menu } = figure(plot);
    const select = plot.parentElement.querySelector("select[name=view]");
    if (!menu || !select || select.options.length) return;
    select.append(...menu.buttons.map(({ label }, i) => new Option(label, i, i === menu.active, i === menu.active)));
    select.addEventListener("change", () => {
      plot.dataset.view = select.value;
      draw(plot);
    });
  }

  // --- when: one chart per frame as they come into view, again when the width or the colors change ---
  let last = Promise.resolve();
  async function appear(plot) {
    await new Promise(requestAnimationFrame);
    if (!plot.dataset.drawn && plot.clientWidth) await draw(plot);
  }
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries)
      if (target.dataset.drawn && target.clientWidth && Number(target.dataset.width) !== target.clientWidth) draw(target);
  });
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) last = last.then(() => appear(target));
  }, { rootMargin: "600px" });
  async function watch(plot) {
    await load(plot);
    seen.observe(plot);
    resized.observe(plot);
    views(plot);
    tools(plot);
  }
  const redraw = () => all(".plot").filter((plot) => plot.clientWidth > 0 && (plot.dataset.drawn || printed)).forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  for (const [event, now] of [["beforeprint", true], ["afterprint", false]])
    addEventListener(event, () => {
      printed = now;
      root.classList.toggle("light", now); // prints have the light colors
      redraw();
    });

  // --- saving a picture, and its data ---
  async function picture(plot, format) {
    if (!plot.dataset.drawn) await draw(plot);
    root.classList.add("light");
    const { data, layout } = composed(plot);
    root.classList.remove("light");
    return Plotly.toImage({ data, layout: { ...layout, paper_bgcolor: "#fff" } }, { format, width: layout.width, height: layout.height, scale: format === "png" ? 2 : 1 });
  }
  function table(plot) {
    const { data, layout } = figure(plot);
    return layout.meta && [layout.meta.columns, ...data.flatMap((trace) => trace.customdata ?? [])];
  }
  // An apostrophe before text that a spreadsheet would evaluate.
  const inert = (value) => (/^[=+\-@\t\r]/.test(value) && isNaN(value) ? `'${value}` : String(value));
  const quoted = (value) => (/[",\n\r]/.test(value) ? `"${inert(value).replaceAll('"', '""')}"` : inert(value));
  const csv = (plot) => table(plot).map((row) => row.map((v) => quoted(v ?? "")).join(",")).join("\n") + "\n";
  function tools(plot) {
    const bar = make("p", { className: "tools" });
    const offer = (word, url) => {
      const onclick = async () => make("a", { href: await url(), download: `${plot.id}.${word.toLowerCase()}` }).click();
      bar.append(make("button", { type: "button", title: `Save as ${word}`, onclick }, word));
    };
    for (const format of ["png", "svg"]) offer(format.toUpperCase(), () => picture(plot, format));
    if (table(plot)) offer("CSV", () => URL.createObjectURL(new Blob([csv(plot)], { type: "text/csv" })));
    plot.closest("figure").append(bar);
  }
  add((part) => all(".plot", part).forEach(watch)); // not awaited: the page is shown before its charts
  // Chart kinds whose data and layout a separate script builds.
  window.charts = { draw, picture, csv, kinds: {} };
})();
