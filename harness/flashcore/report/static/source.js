// A kernel's source next to its machine code. Built when opened, since it may have thousands of rows.
"use strict";
(() => {
  const { all, make, unpacked, add } = window.flashcore;
  let panes = 0;
  let texts;
  const sources = () => (texts ??= unpacked(window.sources).then(JSON.parse));
  // A list of rows [place, text, heat, why]; `moved` is called with the row that the reader selects.
  function pane(name, rows, moved) {
    const id = `pane${panes++}-`;
    const most = Math.max(...rows.map((row) => row[2]), 1e-9);
    const options = rows.map(([place, text, heat, why], i) => {
      const parts = [["b", heat ? heat.toFixed(1) : ""], ["span", place], ["code", text], ["i", why]];
      const option = make("div", { id: id + i, role: "option" }, ...parts.map(([part, value]) => make(part, {}, `${value} `)));
      option.style.setProperty("--heat", `${(100 * heat) / most}%`);
      return option;
    });
    const box = make("div", { role: "listbox", tabIndex: 0, ariaLabel: name, ariaMultiSelectable: "true" }, ...options);
    const hottest = rows.map((_, i) => i).filter((i) => rows[i][2]).sort((a, b) => rows[b][2] - rows[a][2] || a - b);
    let at = -1;
    let marked = [];
    function show(i) {
      options[at]?.classList.remove("at");
      at = i;
      options[i].classList.add("at");
      box.setAttribute("aria-activedescendant", options[i].id);
      // Not scrollIntoView, which would also scroll the page.
      const { offsetTop, offsetHeight } = options[i];
      if (offsetTop < box.scrollTop || offsetTop + offsetHeight > box.scrollTop + box.clientHeight)
        box.scrollTop = offsetTop - box.clientHeight / 3;
    }
    // Marks rows and shows `first`, or else the hottest of them.
    function mark(wanted, first) {
      for (const i of marked) options[i].removeAttribute("aria-selected");
      for (const i of wanted) options[i].setAttribute("aria-selected", true);
      marked = wanted;
      if (wanted.length) show(first ?? wanted.reduce((a, b) => (rows[b][2] > rows[a][2] ? b : a)));
    }
    const go = (i) => (mark([i]), moved(i));
    box.addEventListener("click", (event) => {
      const i = options.indexOf(event.target.closest("[role=option]"));
      if (i >= 0) go(i);
    });
    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const rank = hottest.indexOf(at);
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1,
        n: hottest[rank + 1], p: hottest[Math.max(rank - 1, 0)] }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      if (options[to]) go(to);
    });
    return { box, mark, go, hottest };
  }
  async function build(details) {
    const given = JSON.parse(details.querySelector("script").textContent);
    const files = (await sources()).map((text) => text.split("\n"));
    const rows = ([first, ...others]) => first?.map((value, i) => [value, ...others.map((column) => column[i])]) ?? [];
    const lines = rows(given.lines).map(([file, number, text, ...rest]) =>
      [number ? `${file}:${number}` : "unknown line", text === 0 ? files[given.files[file]][number - 1].trimEnd() : text, ...rest]);
    const code = rows(given.code);
    // The first column is each instruction's offset from the previous one.
    let offset = 0;
    for (const row of code) row[0] = (offset += row[0]).toString(16).padStart(5, "0");
    const made = lines.map(() => []);
    code.forEach((row, i) => row[4].forEach((line) => made[line].push(i)));
    const source = pane(`Source of ${details.dataset.name}`, lines, (i) => sass.mark(made[i]));
    const sass = pane(`Machine code of ${details.dataset.name}`, code, (i) => source.mark(code[i][4], code[i][4][0]));
    details.append(make("div", { className: "panes" }, source.box, sass.box));
    source.go(source.hottest[0] ?? 0);
  }
  add((root) => {
    for (const details of all("details.code", root)) details.addEventListener("toggle", () => build(details), { once: true });
  });
})();
