// Draws the charts when they come into view, in the colours of the style sheet, and hands them out as SVG and CSV.
"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const figure = (plot) => JSON.parse(document.getElementById(plot.dataset.figure).textContent);

  function painted(value) {
    if (typeof value === "string") return /^@[a-z]+$/.test(value) ? colour(value.slice(1)) : value;
    if (Array.isArray(value)) return value.map(painted);
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v)]));
    return value;
  }
  async function draw(plot) {
    const source = figure(plot);
    const kind = window.charts.kinds[source.kind];
    const { data, layout: given } = painted(kind ? kind(plot, source) : source);
    const axis = { gridcolor: colour("grid"), linecolor: colour("line"), tickcolor: colour("line") };
    const narrow = plot.clientWidth < 520;
    const layout = {
      ...given,
      xaxis: { ...axis, ...given.xaxis },
      yaxis: { ...axis, ...given.yaxis },
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 11 : 12, color: colour("text") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("text") }, align: "left" },
      margin: { l: 8, r: narrow ? 20 : 40, t: 36, b: 8, ...given.margin },
    };
    const turn = Number(plot.dataset.drawn ?? 0) + 1;
    plot.dataset.drawn = turn;
    plot.dataset.width = plot.clientWidth;
    const config = { displaylogo: false, displayModeBar: false, responsive: false };
    if (turn === 1) {
      // The axes in one task, the marks and their names in another: together they would be a long one.
      await Plotly.newPlot(plot, [], { ...layout, annotations: [], shapes: [] }, config);
      await new Promise(requestAnimationFrame);
      if (Number(plot.dataset.drawn) > turn) return; // something else was chosen meanwhile
    }
    await Plotly.react(plot, data, layout, config);
  }
  const pending = () => all(".plot:not([data-drawn])").filter((plot) => plot.clientWidth > 0);
  // One chart a frame, so that no task is long.
  let busy = false;
  async function near() {
    if (busy) return;
    busy = true;
    for (const plot of pending()) {
      if (plot.getBoundingClientRect().top > innerHeight + 600) continue;
      await new Promise(requestAnimationFrame);
      if (!plot.dataset.drawn && plot.isConnected) await draw(plot);
    }
    busy = false;
  }
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries)
      if (target.dataset.drawn && target.clientWidth && Number(target.dataset.width) !== target.clientWidth) draw(target);
  });
  const seen = new IntersectionObserver((entries) => entries.some((e) => e.isIntersecting) && near(), { rootMargin: "600px" });
  function watch(root) {
    for (const plot of all(".plot", root)) {
      seen.observe(plot);
      resized.observe(plot);
    }
    for (const box of all("figure.chart", root)) tools(box);
    near();
  }
  const redraw = () => all(".plot[data-drawn]").filter((plot) => plot.clientWidth > 0).forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => pending().forEach(draw));

  // --- what can be taken away: the picture, and the facts it was drawn from ---
  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  const escaped = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  // What is drawn with plain elements, as SVG: each box that has a colour or a border, and each run of text.
  function traced(root) {
    const frame = root.getBoundingClientRect();
    const parts = [];
    const x = (value) => (value - frame.left).toFixed(1);
    const y = (value) => (value - frame.top).toFixed(1);
    for (const element of [root, ...all("*", root)]) {
      const box = element.getBoundingClientRect();
      const style = getComputedStyle(element);
      if (!box.width && !box.height) continue;
      if (style.backgroundColor !== "rgba(0, 0, 0, 0)")
        parts.push(`<rect x="${x(box.left)}" y="${y(box.top)}" width="${box.width.toFixed(1)}" height="${box.height.toFixed(1)}" fill="${style.backgroundColor}"/>`);
      if (element.classList.contains("mark"))
        parts.push(`<path d="M${x(box.left)} ${y(box.top)}v${box.height.toFixed(1)}" stroke="${style.borderLeftColor}"/>`);
      for (const node of element.childNodes) {
        if (node.nodeType !== Node.TEXT_NODE || !node.data.trim()) continue;
        const range = document.createRange();
        range.selectNodeContents(node);
        const words = range.getBoundingClientRect();
        parts.push(`<text x="${x(words.left)}" y="${y(words.bottom - 4)}" font-size="${style.fontSize}" font-weight="${style.fontWeight}" fill="${style.color}">${escaped(node.data.trim())}</text>`);
      }
    }
    const size = `width="${frame.width.toFixed(0)}" height="${frame.height.toFixed(0)}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="sans-serif"><rect ${size} fill="${colour("bg")}"/>${parts.join("")}</svg>`;
  }
  // An inline SVG by itself: what the style sheet gives its parts stands in them.
  function inlined(own) {
    const copy = own.cloneNode(true);
    const twins = [copy, ...all("*", copy)];
    for (const [i, part] of [own, ...all("*", own)].entries()) {
      const style = getComputedStyle(part);
      for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "font-family", "text-anchor", "opacity"])
        twins[i].setAttribute(name, style.getPropertyValue(name));
    }
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    return copy.outerHTML;
  }
  async function svg(box) {
    const plot = box.querySelector(".plot");
    if (!plot) return box.querySelector("svg") ? inlined(box.querySelector("svg")) : traced(box.querySelector("[data-picture]"));
    if (!plot.dataset.drawn) await draw(plot);
    const text = await Plotly.toImage(plot, { format: "svg", width: plot.clientWidth, height: plot.clientHeight });
    return decodeURIComponent(text.slice(text.indexOf(",") + 1));
  }
  function table(box) {
    const beside = box.querySelector("script[data-csv]");
    return beside ? JSON.parse(beside.textContent) : figure(box.querySelector(".plot")).table;
  }
  // A text that a spreadsheet would calculate begins with an apostrophe, as texts do there.
  const inert = (value) => (/^[=+\-@\t\r]/.test(value) && isNaN(value) ? `'${value}` : String(value));
  const quoted = (value) => (/[",\n\r]/.test(value) ? `"${inert(value).replaceAll('"', '""')}"` : inert(value));
  const csv = (box) => table(box).map((row) => row.map((v) => quoted(v ?? "")).join(",")).join("\n") + "\n";
  function tools(box) {
    if (box.querySelector(".tools")) return;
    const bar = document.createElement("p");
    bar.className = "tools";
    const offer = (word, type, make) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = word;
      button.title = `Save the chart as ${word}`;
      const name = box.id || box.querySelector(".plot").id;
      button.addEventListener("click", async () => save(`${name}.${word.toLowerCase()}`, type, await make(box)));
      bar.append(button);
    };
    offer("SVG", "image/svg+xml", svg);
    if (table(box)) offer("CSV", "text/csv", csv);
    box.append(bar);
  }
  // Kinds of charts whose data and layout a script of their own builds.
  window.charts = { watch, near, draw, svg, csv, kinds: {} };
})();
