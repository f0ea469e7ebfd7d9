// One step of the question bank at a time. Python holds the session: `view` is what there is to show, `act` what was done.
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};
const label = (name, text) => name + (/[\u4e00-\u9fff]/.test(name) ? "：" : ": ") + text;
const letter = (n) => String.fromCharCode(97 + n);

function render({ model, el }) {
  const say = model.get("strings");
  const root = make("section", { className: "fl-widget fl-quiz", tabIndex: -1 });
  root.dataset.lmSuppressShortcuts = "true";
  root.setAttribute("aria-label", say.widget.name);
  const head = make("p", { className: "fl-kicker" });
  const clock = make("span", { className: "fl-clock" });
  const body = make("div");
  const status = make("p", { className: "fl-status" });
  status.setAttribute("role", "status");
  root.append(head, body, status);
  let timer = 0;

  const act = (what, value = null) => {
    for (const node of body.querySelectorAll("button, input, textarea")) node.disabled = true;
    status.textContent = say.widget.busy;
    model.set("act", { turn: model.get("view").turn, do: what, value });
    model.save_changes();
  };
  const press = (text, call, extra = "", key = "") => {
    const node = make("button", { type: "button", className: extra, onclick: call }, text);
    if (key) (node.append(" ", make("kbd", { textContent: key })), (node.dataset.key = key.toLowerCase()));
    return node;
  };
  const row = (...nodes) => make("div", { className: "fl-row" }, ...nodes);
  const quiet = () => [press(say.widget.skip, () => act("skip"), "fl-quiet"), press(say.widget.stop, () => act("stop"), "fl-quiet")];
  const titled = (title, ...nodes) => make("div", { className: "fl-part" }, make("p", { className: "fl-title", textContent: title }), ...nodes);

  // A listener, not box.onkeydown: a handler there that returns false keeps every other key from being typed.
  const onEnter = (box, call, also = () => true) =>
    box.addEventListener("keydown", (e) => e.key === "Enter" && !e.isComposing && also(e) && (e.preventDefault(), call()));
  const forms = {
    free() {
      const box = make("textarea", { rows: 6, placeholder: say.free.placeholder });
      box.setAttribute("aria-label", say.free.yours);
      const done = () => act("answer", box.value);
      onEnter(box, done, (e) => e.ctrlKey || e.metaKey);
      return [box, row(press(say.free.done, done), ...quiet())];
    },
    number(step) {
      const box = make("input", { type: "text", autocomplete: "off", spellcheck: false, placeholder: step.example });
      box.setAttribute("aria-label", `${say.item.answer} ${step.unit}`);
      const done = () => act("answer", box.value);
      onEnter(box, done);
      return [row(box, make("span", { className: "fl-unit", textContent: step.unit }), press(say.widget.send, done), ...quiet())];
    },
    choice(step) {
      const list = make("div", { className: "fl-options" });
      step.shown.forEach((text, n) => list.append(press(text, () => act("answer", n), "fl-option", letter(n))));
      return [list, row(...quiet())];
    },
    claim(step) {
      const keys = step.shown.map((text, n) => press(text, () => act("answer", n), "", String(n + 1)));
      return [row(...keys, ...quiet())];
    },
    spot_the_error(step) {
      const list = make("div", { className: "fl-options fl-code" });
      step.shown.forEach((text, n) => list.append(press(text, () => act("answer", n + 1), "fl-option", String(n + 1))));
      return [list, row(...quiet())];
    },
    order(step) {
      let order = step.shown.map((_, n) => n);
      const gone = new Set(), list = make("ol", { className: "fl-steps" });
      const draw = (focus) => {
        list.replaceChildren(...order.map((n, at) => {
          const move = (by, name, text) => {
            const other = at + by;
            const node = press(text, () => (([order[at], order[other]] = [order[other], order[at]]), draw([other, name])), "fl-move");
            node.setAttribute("aria-label", `${name}: ${step.shown[n]}`);
            node.disabled = other < 0 || other >= order.length;
            node.dataset.move = `${at} ${name}`;
            return node;
          };
          const line = make("li", {}, move(-1, say.item.up, "↑"), move(1, say.item.down, "↓"), make("span", { textContent: step.shown[n] }));
          if (step.gone) {
            const box = make("input", { type: "checkbox", checked: gone.has(n) });
            box.onchange = () => (box.checked ? gone.add(n) : gone.delete(n));
            line.append(make("label", {}, box, say.item.mark));
          }
          return line;
        }));
        if (!focus) return;
        const [at, name] = focus;
        const same = list.querySelector(`[data-move="${at} ${name}"]`);
        (same && !same.disabled ? same : list.querySelectorAll("li")[at].querySelector("button:not(:disabled)")).focus();
      };
      draw();
      const value = () => (step.gone ? [order, [...gone]] : order);
      const how = step.gone ? [make("p", { className: "fl-soft", textContent: fill(say.item.how_gone, { count: step.gone }) })] : [];
      return [...how, list, row(press(say.widget.send, () => act("answer", value())), ...quiet())];
    },
    card() {
      return [row(press(say.card.show_button, () => act("answer", ""), "", "Space"), ...quiet())];
    },
  };
  forms.numeric = forms.predict = forms.number;

  const level = (point) => make("span", { className: "fl-level", textContent: say.free[point.level] });
  function ticks(view) {
    const list = make("fieldset", {}, make("legend", { textContent: say.free.tick }));
    const boxes = view.points.map((point) => {
      const box = make("input", { type: "checkbox", checked: point.ticked });
      list.append(make("label", {}, box, make("span", {}, point.text, " ", level(point))));
      return box;
    });
    const done = () => act("tick", view.points.filter((_, n) => boxes[n].checked).map((p) => p.id));
    const given = view.given.trim() ? [titled(say.free.yours, markdown(view.given))] : [];
    return [...given, list, row(press(say.free.tick_done, done))];
  }

  const verdict = (right) =>
    make("p", { className: right ? "fl-right" : "fl-wrong", textContent: right ? `✓ ${say.item.right}` : `✗ ${say.item.wrong}` });

  const results = {
    card: (f) => [
      make("div", { className: "fl-back" }, markdown(f.answer)),
      row(...["again", "hard", "good", "easy"].map((name, n) => press(say.card[name], () => act("rate", n + 1), name === "good" ? "fl-go" : "", String(n + 1)))),
    ],
    item(f, view) {
      const nodes = [verdict(f.right)];
      if (view.step.form === "choice")
        nodes.push(make("ul", { className: "fl-explained" }, ...f.explained.map(([text, why, right]) =>
          make("li", {}, `${right ? "✓" : "✗"} `, make("strong", { textContent: text }), ` ${why}`))));
      else {
        if (f.message) nodes.push(markdown(f.message));
        if (!f.right || ["numeric", "predict"].includes(view.step.form))
          nodes.push(make("p", { textContent: fill(say.item.expected, f) }));
      }
      if (view.step.form === "spot_the_error")
        nodes.push(make("pre", { className: "fl-code" }, ...view.step.shown.map((line, n) =>
          make("div", { className: String(n + 1) === f.expected ? "fl-marked" : "" }, `${n + 1}  ${line}`))));
      if (f.ran) nodes.push(make("p", { className: "fl-soft", textContent: f.ran }));
      return [...nodes, row(next())];
    },
    claim: (f) => [
      verdict(f.right),
      make("p", {}, make("strong", { textContent: fill(say.claim.verdict, f) })),
      markdown(f.correction),
      titled(say.claim.polite, make("p", { textContent: f.polite })),
      titled(say.claim.check, make("p", { textContent: f.check }), ...(f.code ? [make("pre", { textContent: f.code })] : [])),
      row(next()),
    ],
    free(f) {
      const missing = f.points.filter((p) => !p.ticked && p.level !== "bonus");
      const said = (m) => make("div", { className: "fl-heard" },
        make("p", { className: "fl-wrong" }, "✗ ", ...mdInline(fill(say.free.heard, m))),
        make("p", {}, ...mdInline(label(say.free.refutes, m.refutes))));
      const yours = f.given.trim() ? [titled(say.free.yours, markdown(f.given))] : [];
      const more = make("details", {}, make("summary", { textContent: say.widget.more }), markdown(f.answer),
        titled(say.free.wrong, ...f.misconceptions.map((m) => make("p", {}, make("strong", { textContent: m.claim }), make("br"), label(say.free.why, m.why), make("br"), ...mdInline(label(say.free.refutes, m.refutes))))),
        titled(say.free.sources, make("ul", {}, ...f.sources.map((s) => make("li", { textContent: s })))));
      return [
        ...(missing.length
          ? [make("p", { className: f.right ? "fl-title" : "fl-wrong", textContent: say.free.missing }), make("ul", {}, ...missing.map((p) => make("li", {}, p.text, " ", level(p))))]
          : [make("p", { className: "fl-right", textContent: `✓ ${say.free.all_musts}` })]),
        ...f.heard.map(said),
        make("div", { className: "fl-beside" }, ...yours, titled(say.free.model, markdown(f.spoken))),
        make("p", { className: "fl-soft", textContent: label(say.free.where, f.place) }),
        more, row(next()),
      ];
    },
  };
  const next = () => press(say.widget.next, () => act("next"), "fl-go", "Enter");

  function end(view) {
    const s = view.summary;
    const nodes = [make("p", { textContent: fill(say.summary.answered, s) })];
    if (!s.of) return [make("p", { textContent: view.mode === "drill" ? say.modes.nothing_due : say.modes.nothing })];
    const sections = Object.entries(s.sections).map(([name, x]) => make("tr", {},
      Object.assign(make("th", { textContent: `${name}  ${say.sections[name]}` }), { scope: "row" }),
      make("td", { textContent: fill(say.summary.score, { percent: Math.round(100 * x.score), of: x.of }) })));
    if (sections.length) nodes.push(make("table", {}, make("caption", { textContent: say.summary.sections }), make("tbody", {}, ...sections)));
    if (["exam", "diagnosis"].includes(view.mode) && s.review.length)
      nodes.push(titled(say.summary.review, make("ul", { className: "fl-again" }, ...s.review.map((r) =>
        make("li", {}, `${r.question} · ${r.ask}`, ...[label(say.summary.given, r.given), fill(say.item.expected, r), r.message].filter(Boolean).flatMap((text) => [make("br"), text]))))));
    if (s.missed.length)
      nodes.push(titled(say.summary.missed, make("ul", {}, ...s.missed.map((m) => make("li", { textContent: fill(say.summary.point, m) })))));
    const after = Object.entries(s.next);
    if (after.length && view.mode !== "drill")
      nodes.push(titled(say.summary.next, ...after.map(([n, lines]) =>
        make("div", {}, make("strong", { textContent: fill(say.summary.minutes, { n }) }), make("ul", {}, ...lines.map((l) => make("li", { textContent: l })))))));
    return [...nodes, row(press(say.widget.again, () => act("again"), "fl-go"))];
  }

  function draw(first) {
    const view = model.get("view"), here = root.contains(document.activeElement);
    clearInterval(timer);
    const title = say.modes[view.mode] + (view.phase === "done" ? "" : ` · ${fill(say.widget.question, { n: view.number, total: view.total })} · ${view.kind === "claim" ? view.id : view.question || view.id}`);
    head.replaceChildren(title, clock);
    clock.textContent = "";
    if (view.left !== null && view.phase !== "done") {
      const over = Date.now() + 1000 * view.left;
      const tick = () => {
        const left = Math.max(0, Math.ceil((over - Date.now()) / 1000));
        clock.textContent = " · " + (left ? fill(say.widget.left, { minutes: Math.floor(left / 60), seconds: String(left % 60).padStart(2, "0") }) : say.summary.over);
      };
      tick();
      timer = setInterval(tick, 1000);
    }
    const ask = view.phase === "done" ? [] : [make("div", { className: "fl-question" }, markdown(view.step.ask))];
    const rest = view.phase === "done" ? end(view) : view.phase === "ask" ? forms[view.step.form](view.step)
      : view.phase === "tick" ? ticks(view) : results[view.kind](view.feedback, view);
    body.replaceChildren(...ask, ...rest);
    status.textContent = view.message || (view.phase === "feedback" && "right" in view.feedback ? (view.feedback.right ? say.item.right : say.item.wrong) : "");
    status.classList.toggle("fl-wrong", Boolean(view.message));
    status.classList.toggle("fl-hidden", !view.message && view.phase === "feedback"); // said above, here for screen readers
    const holder = document.activeElement; // a button that was just disabled gives the focus to what is around it
    if (!first && (here || (root.dataset.mine && (!holder || holder.contains(root))))) focus();
  }
  const focus = () => (body.querySelector(".fl-go") || body.querySelector("textarea, input") || body.querySelector("button") || root).focus({ preventScroll: true });

  // Without a kernel: a question, then its key points and one answer; nothing is kept.
  function page(at) {
    const all = model.get("offline"), card = all[at];
    head.textContent = fill(say.widget.question, { n: at + 1, total: all.length });
    const show = () => {
      const points = make("fieldset", {}, make("legend", { textContent: say.free.points }),
        ...card.points.map((text) => make("label", {}, make("input", { type: "checkbox" }), make("span", { textContent: text }))));
      const on = row(press(say.widget.next, () => (page((at + 1) % all.length), focus()), "fl-go"));
      body.replaceChildren(make("div", { className: "fl-question" }, markdown(card.ask)), ...(card.points.length ? [points] : []),
        titled(card.points.length ? say.free.model : say.summary.next && say.item.answer, markdown(card.answer)), ...(all.length > 1 ? [on] : []));
      (body.querySelector("input") || body.querySelector("button") || root).focus({ preventScroll: true });
    };
    body.replaceChildren(make("div", { className: "fl-question" }, markdown(card.ask)), row(press(card.points.length ? say.free.done : say.card.show_button, show)));
    status.textContent = say.widget.offline;
  }

  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(TEXTAREA|INPUT|SUMMARY)$/.test(event.target.tagName)) return;
    const key = event.key === " " ? "space" : event.key.toLowerCase();
    const node = [...body.querySelectorAll("button[data-key]")].find((b) => b.dataset.key === key && !b.disabled);
    if (!node || (key === "enter" && event.target.tagName === "BUTTON") || (key === "space" && event.target.tagName === "BUTTON" && event.target !== node)) return;
    event.preventDefault();
    event.stopPropagation();
    node.click();
  });
  root.addEventListener("focusin", () => (root.dataset.mine = "1"));
  const changed = () => draw(false);
  if (model.get("offline").length) page(0);
  else if (!model.get("view").phase) body.append(make("p", { textContent: say.widget.offline }));
  else draw(true);
  model.on("change:view", changed);
  el.append(root);
  return () => (clearInterval(timer), model.off("change:view", changed));
}
export default { render };
