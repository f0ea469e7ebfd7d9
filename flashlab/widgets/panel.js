// The frame of a widget in which the reader chooses sizes: title, sentence for input that does not fit, picture, table,
// controls. The state is the trait `problem` and the traits named in `traits`; Python hears it when a choice is made.

const control = {
  // Tokens: a slider over powers of two with one step between, and a box for any number.
  tokens: (f, id) => `<div class="n"><label for="${id}n">${esc(f.label)}</label>
    <input type="range" id="${id}r" data-field="steps" aria-label="${esc(f.label)}"><input id="${id}n" data-field="Nk" inputmode="numeric" size="9" autocomplete="off"></div>`,
  number: (f) => `<label>${esc(f.label)} <input data-field="${f.name}" inputmode="numeric" size="5" autocomplete="off"></label>`,
  select: (f) => `<label>${esc(f.label)} <select data-field="${f.name}">${f.choices
    .map(([value, name]) => `<option value="${esc(value)}">${esc(name)}</option>`).join("")}</select></label>`,
  check: (f) => `<label><input type="checkbox" data-field="${f.name}"> ${esc(f.label)}</label>`,
  // Few choices side by side.
  radio: (f, id) => `<span class="radio" role="radiogroup" aria-label="${esc(f.label)}">${f.named ? `<span>${esc(f.label)}:</span>` : ""}${f.choices
    .map(([value, name]) => `<label><input type="radio" name="${id}${f.name}" data-field="${f.name}" value="${esc(value)}"> ${esc(name)}</label>`).join("")}</span>`,
};

let panels = 0;
// `draw(state, W, box)` fills the picture and returns {title, more}; `table(state)` returns HTML. `check(state)` returns a
// sentence for choices that do not go together. Returns the clean-up.
export function panel({ model, el, kind, traits, fields, draw, table, check = () => "" }) {
  const s = model.get("strings"), id = `flp${Date.now()}-${panels++}-`, root = document.createElement("div");
  Object.assign(root, { className: `fl-widget fl-panel ${kind}`, role: "group", ariaLabel: s.name });
  root.dataset.lmSuppressShortcuts = "true";
  el.append(root);
  if (model.get("error")) {
    root.innerHTML = `<p class="error" role="alert">${esc(model.get("error"))}</p>`;
    return () => root.remove();
  }
  root.innerHTML = `<output class="title" aria-live="polite"></output><p class="more"></p><p class="wrong" role="alert" hidden></p>
    <div class="controls main">${fields.filter((f) => f.main).map((f) => control[f.kind](f, id)).join("")}</div>
    <div class="picture"></div><div class="table" tabindex="0" role="region" aria-label="${esc(s.as_table)}" hidden></div>
    <div class="controls rest">${fields.filter((f) => !f.main).map((f) => control[f.kind](f, id)).join("")}</div>
    <div class="foot"><button type="button" data-do="table">${esc(s.as_table)}</button><span>${esc(s.only)}</span></div>`;
  const $ = (q) => root.querySelector(q), box = $(".picture"), range = $("[data-field=steps]"), title = $(".title");
  const read = () => ({ ...model.get("problem"), ...Object.fromEntries(traits.map((t) => [t, model.get(t)])) });
  let state = read(), W = 0, asTable = false, sent = JSON.stringify(state), timer = 0;
  const steps = lengths(state.Nk), field = Object.fromEntries(fields.map((f) => [f.kind === "tokens" ? "Nk" : f.name, f]));
  Object.assign(range, { min: 0, max: steps.length - 1, step: 1 });

  function show() { // the controls say what the state says
    for (const input of root.querySelectorAll("[data-field]")) {
      const name = input.dataset.field, value = name === "steps" ? "" : field[name].get ? field[name].get(state) : state[name];
      if (name === "steps") {
        input.value = steps.findLastIndex((n) => n <= state.Nk);
        input.setAttribute("aria-valuetext", `N = ${whole(state.Nk)}`);
      } else if (input.type === "checkbox") input.checked = value;
      else if (input.type === "radio") input.checked = String(value) === input.value;
      else if (input !== document.activeElement || input.tagName === "SELECT") input.value = name === "Nk" ? whole(value) : value;
    }
  }
  function redraw() {
    const said = draw(state, W, box);
    if (title.textContent !== said.title) title.textContent = said.title;
    $(".more").textContent = said.more ?? "";
    if (asTable) $(".table").innerHTML = table(state);
  }
  const commit = () => {
    const now = JSON.stringify(state);
    if (now === sent) return;
    sent = now;
    const problem = Object.fromEntries(Object.keys(model.get("problem")).map((k) => [k, state[k]]));
    if (JSON.stringify(problem) !== JSON.stringify(model.get("problem"))) model.set("problem", problem);
    for (const t of traits) if (model.get(t) !== state[t]) model.set(t, state[t]);
    model.save_changes();
  };
  const say = (words) => {
    $(".wrong").hidden = !words;
    $(".wrong").textContent = words ? `${words} ${s.kept_values}` : "";
  };
  function take(change) { // a choice: drawn if it fits, else the sentence
    const next = { ...state, ...change }, words = check(next);
    say(words);
    if (words) return false;
    state = next;
    (show(), redraw());
    return true;
  }
  const withN = (n) => ({ Nk: n, Nq: state.square ? n : state.Nq });
  const onInput = ({ target }) => target === range && take(withN(steps[+range.value]));
  const onChange = ({ target }) => {
    const f = field[target.dataset.field];
    if (target === range) return commit();
    if (!f) return;
    let value = target.type === "checkbox" ? target.checked : target.value;
    if (f.kind === "number" || f.kind === "tokens") {
      const n = typed(value, f.low ?? 1, f.high);
      target.toggleAttribute("aria-invalid", n === null);
      if (n === null) return say(fill(s.wrong, { name: f.label, low: f.low ?? 1, high: whole(f.high), got: value }));
      value = n;
    }
    target.toggleAttribute("aria-invalid", !take(f.kind === "tokens" ? withN(value) : f.set ? f.set(value, state) : { [f.name]: value }));
    commit();
  };
  const onClick = ({ target }) => {
    if (!target.closest("[data-do=table]")) return;
    asTable = !asTable;
    (($(".table").hidden = !asTable), (box.hidden = asTable));
    $("[data-do=table]").textContent = asTable ? s.as_picture : s.as_table;
    redraw();
  };
  const onKey = (e) => e.key === "Enter" && e.target.tagName === "INPUT" && (e.preventDefault(), e.target.dispatchEvent(new Event("change", { bubbles: true })));
  root.addEventListener("input", onInput);
  root.addEventListener("change", onChange);
  root.addEventListener("click", onClick);
  root.addEventListener("keydown", onKey);
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => { // all traits of one message
      const now = JSON.stringify(read());
      if (now !== sent) ((sent = now), take(read()));
    });
  };
  const names = ["problem", ...traits];
  names.forEach((t) => model.on(`change:${t}`, heard));
  const size = new ResizeObserver(() => {
    const width = Math.floor(root.clientWidth - 36);
    if (width > 0 && width !== W) ((W = width), redraw());
  });
  (show(), size.observe(root));
  return () => (clearTimeout(timer), size.disconnect(), names.forEach((t) => model.off(`change:${t}`, heard)), root.remove());
}

// The usual fields.
export const gpuField = (s, cards) => ({ kind: "select", name: "gpu", label: s.gpu, main: true, choices: cards.map((c) => [c.name, c.name]) });
export const numberField = (s, name, key, high) => ({ kind: "number", name, label: s[key], high });
export const headsFit = (s) => (p) => (p.Hq % p.Hkv ? fill(s.wrong_heads, { hq: p.Hq, hkv: p.Hkv }) : "");
export const dtypeField = (s, p) => ({ kind: "select", name: "dtype", label: s.dtype, choices: ["float16", "bfloat16", "float32", "float64"].map((d) => [d, d]) });
