// Three questions; one button records all answers. The second time both results stand side by side.
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};

function render({ model, el }) {
  const say = model.get("strings").test;
  const after = model.get("half") === "after";
  const offline = model.get("offline");
  const items = model.get("items");
  const own = Math.random().toString(36).slice(2, 8);
  const root = make("section", { className: "fl-widget fl-test" });
  root.dataset.lmSuppressShortcuts = "true";
  root.setAttribute("aria-label", after ? say.after : say.before);
  root.append(
    make("p", { className: "fl-kicker", textContent: after ? say.after : say.before }),
    make("p", { className: "fl-lead", textContent: after ? say.lead_after : say.lead_before }),
  );
  const form = make("div"); // a real form may not submit in a sandboxed frame
  const status = make("p", { className: "fl-status" });
  status.setAttribute("aria-live", "polite");
  const table = make("div", { className: "fl-results" });
  const given = { ...model.get("given") };

  items.forEach((item, n) => {
    const set = make("fieldset", {}, make("legend", { textContent: `${n + 1}. ${item.question}` }));
    const old = given[item.id] || { guess: "", choice: -1 };
    if (item.choices.length) {
      item.choices.forEach((text, c) => {
        const radio = make("input", { type: "radio", name: `${own}-${n}`, value: String(c), checked: old.choice === c });
        radio.onchange = () => (given[item.id] = { guess: text, choice: c });
        set.append(make("label", {}, radio, " " + text));
      });
    } else {
      const box = make("input", { type: "text", autocomplete: "off", value: old.guess });
      box.setAttribute("aria-label", `${fill(say.item, { n: n + 1 })}: ${say.answer}`);
      box.onkeydown = (event) => void (event.key === "Enter" && !event.isComposing && send()); // false would keep other keys out
      box.oninput = () => (given[item.id] = { guess: box.value.trim(), choice: -1 });
      set.append(box);
    }
    form.append(set);
  });
  form.append(make("button", { type: "button", textContent: after ? say.compare : say.record, onclick: send }));
  function send() {
    model.set("given", { ...given });
    model.save_changes();
    if (offline) return void (after ? expected() : (status.textContent = say.offline));
    if (!after) status.textContent = say.recorded;
  }

  const cell = (half) => {
    if (!half || !half.guess) return make("td", { textContent: say.none });
    const mark = half.right ? `✓ ${say.right}` : `✗ ${say.wrong}, ${fill(say.expected, { answer: half.expected })}`;
    return make("td", {}, make("code", { textContent: half.guess }), make("span", { className: half.right ? "fl-good" : "fl-bad", textContent: ` ${mark}` }));
  };
  const rows = (heads, lines) =>
    table.replaceChildren(make("table", {},
      make("thead", {}, make("tr", {}, ...heads.map((h) => make("th", { scope: "col", textContent: h })))),
      make("tbody", {}, ...lines)));
  function draw() {
    const results = model.get("results");
    if (!results.length) return;
    rows([say.column_question, say.column_before, say.column_after], results.map((r, n) =>
      make("tr", {}, make("th", { scope: "row", textContent: String(n + 1) }), cell(r.before), cell(r.after))));
  }
  function expected() {
    rows([say.column_question, say.column_after], items.map((item, n) =>
      make("tr", {}, make("th", { scope: "row", textContent: String(n + 1) }), make("td", { textContent: fill(say.expected, { answer: item.expected }) }))));
    status.textContent = say.offline;
  }

  root.append(form, status, table);
  if (!after && Object.keys(given).length) status.textContent = say.recorded;
  model.on("change:results", draw);
  draw();
  el.append(root);
  return () => model.off("change:results", draw);
}
export default { render };
