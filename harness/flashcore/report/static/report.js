// Makes tables sort and filter, shapes switch and charts draw. Without it the pages still say everything.
"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));

  // --- sorting: numbers and words; what was not measured stays last, whatever the direction ---
  const key = (row, index) => {
    const cell = row.cells[index];
    if (!cell) return null;
    if (cell.classList.contains("missing") || cell.classList.contains("none")) return null;
    const text = cell.dataset.sort ?? cell.textContent.trim();
    const number = Number(text);
    return text === "" ? null : Number.isNaN(number) ? text.toLowerCase() : number;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en");
  function sort(table, heading, index) {
    const down = heading.getAttribute("aria-sort") === "ascending";
    const body = table.tBodies[0];
    const keyed = Array.from(body.rows, (row) => [key(row, index), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return down ? compare(b, a) : compare(a, b);
    });
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...keyed.map(([, row]) => row));
  }
  for (const table of all("table.sortable")) {
    Array.from(table.tHead.rows[0].cells).forEach((heading, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sort(table, heading, index));
    });
  }

  // --- charts: drawn when they come into view, in the colours of the style sheet ---
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  function painted(value) {
    if (typeof value === "string") return /^@[a-z]+$/.test(value) ? colour(value.slice(1)) : value;
    if (Array.isArray(value)) return value.map(painted);
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v)]));
    return value;
  }
  function draw(plot) {
    const figure = painted(JSON.parse(document.getElementById(plot.dataset.figure).textContent));
    const axis = { gridcolor: colour("grid"), linecolor: colour("line"), tickcolor: colour("line") };
    const narrow = plot.clientWidth < 520;
    const layout = {
      ...figure.layout,
      xaxis: { ...axis, ...figure.layout.xaxis },
      yaxis: { ...axis, ...figure.layout.yaxis },
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 10 : 12, color: colour("text") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("text") }, align: "left" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("link") },
      margin: { l: 8, r: narrow ? 20 : 40, t: 36, b: 8 },
    };
    plot.dataset.drawn = "1";
    plot.dataset.width = plot.clientWidth;
    return Plotly.react(plot, figure.data, layout, { displaylogo: false, displayModeBar: narrow ? false : "hover",
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] });
  }
  // At once, for what a click has just brought into view; scrolling is left to the observer.
  function drawNear() {
    for (const plot of all(".plot:not([data-drawn])")) {
      if (plot.clientWidth > 0 && plot.getBoundingClientRect().top < innerHeight + 800) draw(plot);
    }
  }
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting && entry.target.clientWidth > 0 && !entry.target.dataset.drawn) draw(entry.target);
      }
    },
    { rootMargin: "800px" },
  );
  all(".plot").forEach((plot) => seen.observe(plot));
  // A chart that was hidden, or whose window changed, takes its new width.
  const sized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (!target.dataset.drawn || target.clientWidth === 0 || Number(target.dataset.width) === target.clientWidth) continue;
      draw(target);
    }
  });
  all(".plot").forEach((plot) => sized.observe(plot));
  const redraw = () => all(".plot[data-drawn]").filter((plot) => plot.clientWidth > 0).forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => all(".plot").filter((plot) => plot.clientWidth > 0).forEach(draw));

  // --- one shape at a time ---
  for (const control of all("[data-switch]")) {
    const page = control.closest(".page");
    const select = control.querySelector("select");
    const show = () => {
      for (const part of all(".byshape", page)) part.hidden = part.dataset.shape !== select.value;
      drawNear();
    };
    const wanted = new URLSearchParams(location.search).get("shape");
    if (wanted && Array.from(select.options).some((o) => o.value === wanted)) select.value = wanted;
    select.addEventListener("change", show);
    control.hidden = false;
    show();
  }

  // --- the verdicts' filter ---
  for (const form of all("[data-filter]")) {
    const rows = Array.from(document.getElementById(form.dataset.filter).tBodies[0].rows);
    const count = form.querySelector("output");
    const apply = () => {
      const status = new Set(all("[name=status]:checked", form).map((box) => box.value));
      const tier = form.elements.tier.value;
      const variant = form.elements.variant.value.trim().toLowerCase();
      let shown = 0;
      for (const row of rows) {
        const keep =
          status.has(row.dataset.status) &&
          (!tier || row.dataset.tier === tier) &&
          row.dataset.variant.toLowerCase().includes(variant);
        row.hidden = !keep;
        shown += keep;
      }
      count.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} shown`;
    };
    form.elements.variant.value = new URLSearchParams(location.search).get("variant") ?? "";
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    apply();
  }

  // --- what hovering tells, for those who tap ---
  const inspector = document.getElementById("inspector");
  document.addEventListener("click", (event) => {
    const from = event.target instanceof Element ? event.target : null;
    const menu = from?.closest(".menu");
    for (const open of all(".menu[open]")) if (open !== menu) open.open = false;
    const cell = from?.closest("a, button, summary, label") ? null : from?.closest("td[title], dd[title], .badge[title]");
    inspector.hidden = !cell;
    inspector.textContent = cell ? cell.title : "";
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    inspector.hidden = true;
    for (const open of all(".menu[open]")) open.open = false;
  });

  // --- all pages in one file: show the one that the address names ---
  if (document.body.classList.contains("single")) {
    document.body.classList.add("paged");
    const show = () => {
      const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      const page = target?.closest(".page") ?? document.querySelector(".page");
      for (const other of all(".page")) other.classList.toggle("current", other === page);
      document.title = document.title.replace(/^[^·]*·/, `${page.dataset.title} ·`);
      if (target && target !== page) target.scrollIntoView();
      else scrollTo(0, 0);
      drawNear();
    };
    addEventListener("hashchange", show);
    show();
  }
})();
