// The value beside the guess. Offline: the value behind a button.
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};

function render({ model, el }) {
  const say = model.get("strings").reveal;
  const root = make("section", { className: "fl-widget fl-reveal" });
  root.dataset.lmSuppressShortcuts = "true";
  root.setAttribute("aria-label", say.title);
  let open = !model.get("offline");

  const pair = (name, text, extra = "") =>
    make("div", { className: `fl-pair ${extra}` }, make("span", { className: "fl-name", textContent: name }), make("span", { className: "fl-is", textContent: text }));

  function answer() {
    const { guess, verdict, thinking } = Object.fromEntries(["guess", "verdict", "thinking"].map((n) => [n, model.get(n)]));
    const list = make("div", { className: "fl-pairs" }, pair(say.value, model.get("value"), "fl-value"));
    if (guess) list.append(pair(say.guess, guess));
    const body = make("div", {}, list);
    if (verdict) {
      const mark = verdict === "right" ? "✓ " : "✗ ";
      body.append(make("p", { className: `fl-verdict fl-${verdict}` }, make("strong", { textContent: mark + say[verdict] }), thinking ? " · " + thinking : ""));
    }
    if (model.get("offline")) {
      const mistakes = model.get("mistakes");
      if (mistakes.length) {
        body.append(make("ul", {}, ...mistakes.map((m) =>
          make("li", {}, make("strong", { textContent: fill(say.if_you_said, m) + ": " }), m.text))));
      }
    }
    return body;
  }

  function draw() {
    root.replaceChildren();
    if (model.get("offline")) {
      const button = make("button", { type: "button", textContent: open ? say.hide : say.show });
      button.setAttribute("aria-expanded", String(open));
      button.onclick = () => ((open = !open), draw(), root.querySelector("button").focus());
      root.append(make("p", { className: "fl-question", textContent: model.get("question") }), button);
    }
    const live = make("div", { className: "fl-answer" });
    live.setAttribute("aria-live", "polite");
    root.append(live);
    if (open) live.append(answer());
  }

  const heard = ["change:guess", "change:verdict", "change:thinking", "change:value"];
  heard.forEach((name) => model.on(name, draw));
  draw();
  el.append(root);
  return () => heard.forEach((name) => model.off(name, draw));
}
export default { render };
