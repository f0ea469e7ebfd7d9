// Prompts one at a time, in the same place: Space shows the answer, J knew it, F not yet, Esc skips. No score.
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};

function render({ model, el }) {
  const say = model.get("strings").review;
  const cards = model.get("cards");
  const root = make("section", { className: "fl-widget fl-review", tabIndex: -1 });
  root.setAttribute("aria-label", `${say.title} ${model.get("stop")}`);
  let at = 0, shown = false, skipped = false;

  const button = (text, key, act, extra = "") => {
    const node = make("button", { type: "button", className: extra }, text + " ", make("kbd", { textContent: key }));
    node.setAttribute("aria-keyshortcuts", { Space: "Space", Esc: "Escape" }[key] || key);
    node.onclick = act;
    return node;
  };
  const over = () => skipped || at >= cards.length;
  // When all is done the notebook gets its keys back, so that Shift+Enter goes on.
  const focus = () =>
    ((over() && el.closest(".jp-Cell")) || root.querySelector("button") || root).focus({ preventScroll: true });
  const show = () => ((shown = true), draw(), focus());
  const skip = () => ((skipped = true), draw(), focus());
  function mark(knew) {
    model.set("marks", { ...model.get("marks"), [cards[at].id]: knew });
    model.save_changes();
    (at += 1), (shown = false);
    draw();
    focus();
  }
  const again = () => ((at = 0), (shown = skipped = false), draw(), focus());

  function draw() {
    const head = make("p", { className: "fl-kicker" }, `${say.title} ${model.get("stop")}`);
    const live = make("div", { className: "fl-face" });
    live.setAttribute("aria-live", "polite");
    const row = make("div", { className: "fl-row" });
    root.replaceChildren(head, live, row);
    root.dataset.lmSuppressShortcuts = String(!over()); // J and F are ours here, not the notebook's
    if (over()) {
      const left = cards.filter((c) => model.get("marks")[c.id] === false).length;
      const returning = left === 0 ? say.returning_none : model.get("last") ? fill(say.last, { n: left })
        : left === 1 ? say.returning_one : fill(say.returning, { n: left });
      live.append(make("p", { textContent: skipped ? say.skipped : fill(say.done, { returning }) }));
      row.append(make("button", { type: "button", className: "fl-quiet", textContent: say.start_again, onclick: again }));
      return;
    }
    const card = cards[at];
    head.append(" · ", fill(say.count, { n: at + 1, total: cards.length }), card.returning ? ` · ${say.again}` : "");
    live.append(make("p", { className: "fl-question", textContent: card.ask }));
    if (shown) {
      live.append(make("p", { className: "fl-back", textContent: card.answer }));
      row.append(button(say.knew, "J", () => mark(true)), button(say.not_yet, "F", () => mark(false)));
    } else row.append(button(say.show, "Space", show));
    row.append(button(say.skip, "Esc", skip, "fl-quiet"));
    root.append(make("p", { className: "fl-status", textContent: say.keys }));
  }

  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || over()) return;
    const act = { j: shown && (() => mark(true)), f: shown && (() => mark(false)), Escape: skip, " ": !shown && show }[
      event.key.length === 1 ? event.key.toLowerCase() : event.key
    ];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  root.addEventListener("click", (event) => event.target.closest("button") || focus());
  draw();
  el.append(root);
  return () => {};
}
export default { render };
