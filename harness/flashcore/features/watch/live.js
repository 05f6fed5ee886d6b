// Draws the events of flashcore watch in place. All text enters the page as text nodes, never as HTML.
"use strict";
(() => {
  const QUESTIONS = ["budgets", "right", "faster", "limits"];
  const MARKS = { failed: "fail", unmeasured: "unmeasured", ok: "pass" }; // the worst first
  const at = (id) => document.getElementById(id);
  const key = (...parts) => JSON.stringify(parts);

  // All that the server keeps, in the order of time: it sends everything each time.
  let events = [];
  const named = (...names) => events.filter((event) => names.includes(event.event));
  const last = (...names) => named(...names).at(-1) ?? null;

  // --- elements ---
  function make(name, className, ...children) {
    const element = document.createElement(name);
    if (className) element.className = className;
    element.append(...children);
    return element;
  }
  const listed = (files) => files.slice(0, 3).join(", ") + (files.length > 3 ? ` and ${files.length - 3} more` : "");
  const badge = (mark, text) => make("span", `badge ${mark}`, text);
  function age(event, suffix = " ago") {
    const element = make("time");
    element.dataset.since = event.since;
    element.dataset.suffix = suffix;
    return element;
  }
  function count() {
    for (const element of document.querySelectorAll("time")) {
      const seconds = Math.max(0, Math.floor((Date.now() - element.dataset.since) / 1000));
      const text = seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
      if (element.textContent !== text + element.dataset.suffix) element.textContent = text + element.dataset.suffix;
    }
  }
  // Replaces an element's content only if it changed: a selection of text in other parts stays.
  const drawn = new Map();
  function draw(id, content, ...children) {
    const version = JSON.stringify(content);
    if (drawn.get(id) === version) return;
    drawn.set(id, version);
    at(id).replaceChildren(...children);
  }

  function reply(answer, save) {
    const old = answer.save !== save;
    const meta = make("p", "meta", badge(MARKS[answer.status] ?? "", answer.status));
    if (answer.shape !== null) meta.append(make("b", "", answer.shape));
    if (old) meta.append(badge("stale", `of save ${answer.save}`));
    meta.append(make("span", "detail", `after ${answer.seconds.toFixed(1)} s, `, age(answer)));
    const lines = answer.lines.map((line, i) => make("p", i ? "line" : "answer", line));
    return make("div", old ? "reply old" : "reply", meta, ...lines);
  }
  function outcome(save, variant, question) {
    const ours = named("answer").filter((a) => a.save === save && a.variant === variant && a.question === question);
    const statuses = [...new Map(ours.map((a) => [a.shape, a.status])).values()]; // the last of each shape
    return Object.keys(MARKS).find((status) => statuses.includes(status)) ?? null;
  }

  function render() {
    const saves = named("save").sort((a, b) => b.save - a.save);
    const save = saves[0] ?? null;
    const answers = [...new Map(named("answer").map((a) => [key(a.variant, a.question, a.shape), a])).values()];
    const current = Math.max(0, ...saves.map((s) => s.save), ...answers.map((a) => a.save));
    const [error, worker] = ["error", "worker"].map((name) => (events.indexOf(last(name)) > events.indexOf(last("save")) ? last(name) : null));
    const variants = [...new Set(answers.map((a) => a.variant))].sort();
    const picked = decodeURIComponent(location.hash.slice(1));
    const newest = Math.max(...answers.map((a) => a.save));
    const variant = variants.includes(picked) ? picked : (named("answer").find((a) => a.save === newest)?.variant ?? null);

    draw("variant", variant, variant ?? "waiting for the first answer");
    at("variants").hidden = variants.length < 2;
    draw("variants", [variants, variant], ...variants.map((name) => {
      const link = make("a", "", name);
      link.href = `#${encodeURIComponent(name)}`;
      if (name === variant) link.setAttribute("aria-current", "page");
      return link;
    }));
    draw("save", save, ...(save ? [make("b", "", `Save ${save.save}`), ` ${listed(save.files)} `, make("span", "detail", age(save))] : []));
    at("error").hidden = !error;
    draw("error", error, ...(error ? [make("h2", "", badge("fail", "error")), make("pre", "", error.message)] : []));
    at("worker").hidden = !worker;
    draw("worker", worker, ...(worker ? [`${worker.message}, `, age(worker)] : []));
    for (const question of QUESTIONS) {
      const replies = answers.filter((a) => a.variant === variant && a.question === question)
        .sort((a, b) => String(a.shape ?? "").localeCompare(String(b.shape ?? "")));
      draw(question, [replies, current], ...(replies.length
        ? replies.map((answer) => reply(answer, current))
        : [make("p", "detail", "no answer yet")]));
    }
    const rows = saves.map((s) => [s, QUESTIONS.map((question) => outcome(s.save, variant, question))]);
    draw("saves", rows, ...rows.map(([s, outcomes]) => make("tr", "",
      make("td", "number", String(s.save)), make("td", "", age(s)),
      ...outcomes.map((status) => make("td", "", status ? badge(MARKS[status], status) : "–")), make("td", "", listed(s.files)))));
    connection();
    const worst = variant === null ? null : Object.keys(MARKS).find((status) => QUESTIONS.some((q) => outcome(current, variant, q) === status));
    document.title = `${worst ? { failed: "✗ ", unmeasured: "? ", ok: "✓ " }[worst] : ""}${variant ?? "flashcore watch"}${save ? `, save ${save.save}` : ""}`;
    count();
  }

  // --- the server ---
  let link = "waiting"; // or "open", "lost", "refused"
  let seen = new Map(); // event as JSON → its time here
  function connection() {
    const doing = last("working", "idle");
    if (link === "refused") draw("doing", "closed", badge("fail", "ended: open the address that flashcore watch prints"));
    else if (link === "lost") draw("doing", "lost", badge("unmeasured", "not connected; trying again"));
    else if (doing && doing.event === "working") draw("doing", doing, badge("working", doing.what), make("span", "detail", " for ", age(doing, "")));
    else draw("doing", doing, badge("", doing ? "idle" : "waiting"));
  }
  async function ask() {
    try {
      const response = await fetch("/state");
      link = response.ok ? "open" : "refused";
      if (response.ok) {
        const sent = (await response.json()).map(([seconds, event]) => [JSON.stringify(event), seconds, event]);
        seen = new Map(sent.map(([text, seconds]) => [text, seen.get(text) ?? Date.now() - 1000 * seconds]));
        events = sent.map(([text, , event]) => ({ ...event, since: seen.get(text) }));
      }
    } catch {
      link = "lost";
    }
    render();
    if (link !== "refused") setTimeout(ask, 500);
  }
  addEventListener("hashchange", render);
  setInterval(count, 1000);
  ask();
})();
