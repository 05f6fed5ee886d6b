// Draws the charts when they come into view, in the style sheet's colors, and exports them as SVG and CSV.
"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const cssColor = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const figure = (plot) => JSON.parse(document.getElementById(plot.dataset.figure).textContent);

  function painted(value) {
    if (typeof value === "string") return /^@[a-z0-9]+$/.test(value) ? cssColor(value.slice(1)) : value;
    if (Array.isArray(value)) return value.map(painted);
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v)]));
    return value;
  }
  function composed(plot) {
    const source = figure(plot);
    const kind = window.charts.kinds[source.kind];
    const { data, layout: given } = painted(kind ? kind(plot, source) : source);
    const axis = { gridcolor: cssColor("grid"), linecolor: cssColor("line"), tickcolor: cssColor("line") };
    const narrow = plot.clientWidth < 520;
    const layout = {
      ...given,
      xaxis: { ...axis, ...given.xaxis },
      yaxis: { ...axis, ...given.yaxis },
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 11 : 12, color: cssColor("text") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: cssColor("panel"), bordercolor: cssColor("line"), font: { color: cssColor("text") }, align: "left" },
      margin: { l: 8, r: narrow ? 20 : 40, t: 36, b: 8, ...given.margin },
    };
    return { data, layout };
  }
  async function draw(plot) {
    const { data, layout } = composed(plot);
    const turn = Number(plot.dataset.drawn ?? 0) + 1;
    plot.dataset.drawn = turn;
    plot.dataset.width = plot.clientWidth;
    const config = { displaylogo: false, displayModeBar: false, responsive: false };
    if (turn === 1) {
      // Axes and marks in separate tasks, since together they would block the page too long.
      await Plotly.newPlot(plot, [], { ...layout, annotations: [], shapes: [] }, config);
      await new Promise(requestAnimationFrame);
      if (Number(plot.dataset.drawn) > turn) return; // the selection changed meanwhile
    }
    await Plotly.react(plot, data, layout, config);
    if (turn === 1) plot.dispatchEvent(new Event("drawn"));
  }
  const pending = () => all(".plot:not([data-drawn])").filter((plot) => plot.clientWidth > 0);
  // One chart per frame, so that no task is long.
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
  const root = document.documentElement;
  addEventListener("beforeprint", () => {
    root.classList.add("light");
    redraw();
    pending().forEach(draw);
  });
  addEventListener("afterprint", () => {
    root.classList.remove("light");
    redraw();
  });

  // --- export: the picture, and its data ---
  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  const escaped = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  // Colors as RGB, since other programs do not support the style sheet's color-mix().
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  function plain(value) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = value;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return a ? `rgb(${r},${g},${b})" fill-opacity="${(a / 255).toFixed(2)}` : "";
  }
  const dashes = { dashed: "4 3", dotted: "1.5 2" };
  // A text's lines as broken on the page: words and their bounding box.
  function lines(node) {
    const broken = [];
    for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const box = range.getBoundingClientRect();
      const last = broken.at(-1);
      if (last && Math.abs(last.box.top - box.top) < 2) last.text += ` ${word}`;
      else broken.push({ text: word, box });
    }
    return broken;
  }
  // A picture made of HTML elements as SVG: boxes with colors, corners and rotation, borders with dashes, texts.
  function traced(picture) {
    const frame = picture.getBoundingClientRect();
    const parts = [];
    for (const element of [picture, ...all("*", picture)]) {
      const style = getComputedStyle(element);
      const box = element.getBoundingClientRect();
      if ((!box.width && !box.height) || style.visibility === "hidden") continue;
      // A rotated element's own size: its bounding box is larger.
      const { a, b } = new DOMMatrix(style.transform);
      const turn = (Math.atan2(b, a) * 180) / Math.PI;
      const [width, height] = turn ? [element.offsetWidth, element.offsetHeight] : [box.width, box.height];
      const [cx, cy] = [(box.left + box.right) / 2 - frame.left, (box.top + box.bottom) / 2 - frame.top];
      const [x, y] = [cx - width / 2, cy - height / 2];
      const fill = plain(style.backgroundColor);
      const radius = style.borderTopLeftRadius.endsWith("%") ? (parseFloat(style.borderTopLeftRadius) / 100) * width : parseFloat(style.borderTopLeftRadius);
      if (fill)
        parts.push(`<rect x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${width.toFixed(1)}" height="${height.toFixed(1)}"${radius ? ` rx="${radius}"` : ""}${turn ? ` transform="rotate(${turn.toFixed(0)} ${cx.toFixed(1)} ${cy.toFixed(1)})"` : ""} fill="${fill}"/>`);
      for (const [side, path] of [["Top", `M${x} ${y}h${width}`], ["Left", `M${x} ${y}v${height}`], ["Right", `M${x + width} ${y}v${height}`], ["Bottom", `M${x} ${y + height}h${width}`]]) {
        const [line, thick, color] = [style[`border${side}Style`], parseFloat(style[`border${side}Width`]), plain(style[`border${side}Color`])];
        if (line !== "none" && thick && color)
          parts.push(`<path d="${path}" stroke="${color.replace("fill", "stroke")}" stroke-width="${thick}"${line in dashes ? ` stroke-dasharray="${dashes[line]}"` : ""}/>`);
      }
      for (const node of element.childNodes)
        for (const { text, box: at } of node.nodeType === Node.TEXT_NODE ? lines(node) : [])
          parts.push(`<text x="${(at.left - frame.left).toFixed(1)}" y="${(at.bottom - frame.top - at.height / 4.5).toFixed(1)}" font-size="${style.fontSize}" font-weight="${style.fontWeight}" font-style="${style.fontStyle}" fill="${plain(style.color)}">${escaped(text)}</text>`);
    }
    const size = `width="${frame.width.toFixed(0)}" height="${frame.height.toFixed(0)}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="${escaped(getComputedStyle(picture).fontFamily)}"><rect ${size} fill="${cssColor("bg")}"/>${parts.join("")}</svg>`;
  }
  // A standalone copy of an inline SVG, with the style sheet's properties as attributes.
  function inlined(picture) {
    const copy = picture.cloneNode(true);
    const twins = [copy, ...all("*", copy)];
    for (const [i, part] of [picture, ...all("*", picture)].entries()) {
      const style = getComputedStyle(part);
      for (const name of ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "paint-order", "font-size", "font-weight", "font-family", "text-anchor", "opacity"])
        twins[i].setAttribute(name, style.getPropertyValue(name));
    }
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.style.background = cssColor("bg");
    return copy.outerHTML;
  }
  // Prints and files use the light colors.
  function light(make) {
    root.classList.add("light");
    try {
      return make();
    } finally {
      root.classList.remove("light");
    }
  }
  async function svg(box) {
    const plot = box.querySelector(".plot");
    if (!plot) return light(() => (box.querySelector("svg") ? inlined(box.querySelector("svg")) : traced(box.querySelector("[data-picture]"))));
    if (!plot.dataset.drawn) await draw(plot);
    const { data, layout } = light(() => {
      const { data, layout } = composed(plot);
      return { data, layout: { ...layout, paper_bgcolor: cssColor("bg") } };
    });
    const text = await Plotly.toImage({ data, layout }, { format: "svg", width: plot.clientWidth, height: plot.clientHeight });
    return decodeURIComponent(text.slice(text.indexOf(",") + 1));
  }
  function table(box) {
    const beside = box.querySelector("script[data-csv]");
    return beside ? JSON.parse(beside.textContent) : figure(box.querySelector(".plot")).table;
  }
  // An apostrophe before text that a spreadsheet would evaluate.
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
  // Chart kinds whose data and layout a separate script builds.
  window.charts = { watch, near, draw, svg, csv, kinds: {} };
})();
