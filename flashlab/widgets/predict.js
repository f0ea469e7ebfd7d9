// A question with a box or buttons. Enter (or a click) locks the guess; nothing ever waits for it.
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};
let count = 0;

function render({ model, el }) {
  const say = model.get("strings").predict;
  const id = `fl-predict-${count++}-${Math.random().toString(36).slice(2, 7)}`;
  const root = make("section", { className: "fl-widget fl-ask" });
  root.setAttribute("aria-labelledby", id);
  const title = make("p", { className: "fl-kicker", textContent: say.title });
  const question = make("p", { className: "fl-question", id });
  const form = make("div", { className: "fl-form" }); // a real form may not submit in a sandboxed frame
  form.dataset.lmSuppressShortcuts = "true"; // keys typed here are not the notebook's
  const status = make("p", { className: "fl-status" });
  status.setAttribute("aria-live", "polite");
  const line = make("div", { className: "fl-line" }, status);
  root.append(title, question, form, line);
  let open = !model.get("locked").guess; // is the box open for a guess?

  function lock(guess, choice = -1) {
    if (!guess) return void (status.textContent = say.empty);
    open = false;
    model.set("locked", { guess, choice });
    model.save_changes();
    draw();
    // Back to the notebook's own keys, so that Shift+Enter goes on; outside a notebook to the next button.
    (el.closest(".jp-Cell") || root.querySelector("button"))?.focus({ preventScroll: true });
  }

  function tell() {
    const { guess } = model.get("locked");
    if (model.get("offline")) status.textContent = say.offline;
    else if (open) status.textContent = model.get("choices").length ? say.hint_choice : say.hint;
    else status.textContent = fill(say.locked, { guess }) + (model.get("saved") ? "" : " " + say.unsaved);
  }

  function draw() {
    const { guess, choice } = { choice: -1, ...model.get("locked") };
    const choices = model.get("choices");
    question.textContent = model.get("question");
    form.replaceChildren();
    line.querySelector("button")?.remove();
    form.setAttribute("role", "group");
    form.setAttribute("aria-label", say.your_guess);
    if (choices.length) {
      choices.forEach((text, n) => {
        const button = make("button", { type: "button", textContent: text, disabled: !open && n !== choice });
        button.setAttribute("aria-pressed", String(!open && n === choice));
        button.onclick = () => open && lock(text, n);
        form.append(button);
      });
    } else if (open) {
      const box = make("input", { type: "text", autocomplete: "off", spellcheck: false, value: guess || "" });
      box.setAttribute("aria-label", say.your_guess);
      const unit = model.get("unit");
      form.append(box, ...(unit ? [make("span", { className: "fl-unit", textContent: unit })] : []));
      const send = () => lock(box.value.trim());
      form.append(make("button", { type: "button", textContent: say.enter, className: "fl-primary", onclick: send }));
      box.onkeydown = (event) => void (event.key === "Enter" && !event.isComposing && (event.preventDefault(), send())); // false would keep other keys out
    }
    if (!open) {
      const again = make("button", { type: "button", textContent: say.again, className: "fl-quiet" });
      again.onclick = () => {
        open = true;
        draw();
        (form.querySelector("input") || form.querySelector("button")).focus();
      };
      line.append(again);
    }
    form.hidden = !form.children.length;
    tell();
  }

  model.on("change:locked", draw);
  model.on("change:saved", tell);
  draw();
  el.append(root);
  return () => (model.off("change:locked", draw), model.off("change:saved", tell));
}
export default { render };
