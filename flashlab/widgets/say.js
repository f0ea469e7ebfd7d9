// A timer, then key points to tick beside one way to say it.
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};

function render({ model, el }) {
  const say = model.get("strings").say;
  const root = make("section", { className: "fl-widget fl-say" });
  root.dataset.lmSuppressShortcuts = "true";
  root.setAttribute("aria-label", say.title);
  const status = make("p", { className: "fl-status" });
  status.setAttribute("aria-live", "polite");
  const body = make("div");
  root.append(
    make("p", { className: "fl-kicker", textContent: say.title }),
    make("p", { className: "fl-question", textContent: model.get("ask") }),
    body, status,
  );
  let timer = 0;
  const press = (text, act, extra = "") => make("button", { type: "button", textContent: text, onclick: act, className: extra });

  function start() {
    const end = Date.now() + 1000 * model.get("seconds");
    const clock = make("span", { className: "fl-clock" }); // not live: a screen reader would be flooded
    const bar = make("progress", { max: model.get("seconds") });
    bar.setAttribute("aria-label", say.title);
    const stop = press(say.stop, points);
    body.replaceChildren(make("div", { className: "fl-row" }, stop, bar, clock));
    status.textContent = "";
    const tick = () => {
      const left = Math.max(0, Math.ceil((end - Date.now()) / 1000));
      clock.textContent = fill(say.running, { seconds: left });
      bar.value = left;
      if (left === 0) points();
    };
    clearInterval(timer);
    timer = setInterval(tick, 250);
    tick();
    stop.focus({ preventScroll: true });
  }

  function points() {
    const timed = timer !== 0;
    clearInterval(timer);
    timer = 0;
    const all = model.get("points");
    const ticked = new Set(model.get("ticked") || []);
    const count = make("p", { className: "fl-count" });
    count.setAttribute("aria-live", "polite");
    const tell = () => (count.textContent = fill(say.said, { n: ticked.size, total: all.length }));
    const list = make("fieldset", {}, make("legend", { textContent: say.points }));
    all.forEach((text, n) => {
      const box = make("input", { type: "checkbox", checked: ticked.has(n) });
      box.onchange = () => {
        box.checked ? ticked.add(n) : ticked.delete(n);
        model.set("ticked", [...ticked].sort((a, b) => a - b));
        model.save_changes();
        tell();
      };
      list.append(make("label", {}, box, make("span", { textContent: text })));
    });
    tell();
    list.append(count);
    const model_answer = make("div", { className: "fl-model" }, make("p", { className: "fl-head", textContent: say.model }), make("p", { textContent: model.get("answer") }));
    body.replaceChildren(make("div", { className: "fl-beside" }, list, model_answer), begin());
    status.textContent = timed ? say.over : "";
    list.querySelector("input").focus({ preventScroll: true });
  }

  const begin = () => make("div", { className: "fl-row" }, press(fill(say.start, { seconds: model.get("seconds") }), start));
  const first = begin();
  first.append(press(say.skip, points, "fl-quiet"));
  body.append(first);
  el.append(root);
  return () => clearInterval(timer);
}
export default { render };
