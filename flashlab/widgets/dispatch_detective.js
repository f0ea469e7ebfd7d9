// The picture of DispatchDetective. A question goes to Python (trait `asked`) and comes back as `answer`; a page without
// Python looks it up in `offline`.

const esc = (s) => String(s).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const put = (text, values) => text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
const SIZES = ["B", "Hq", "Hkv", "Nq", "Nk", "D"], FLAGS = ["enable_gqa", "requires_grad", "masked_rows", "training"];
const MASKS = ["none", "causal", "bool", "float", "learned"], DTYPES = ["float16", "bfloat16", "float32", "float64"];
const BACKENDS = { cpu: ["flash", "math"], cuda: ["cudnn", "flash", "efficient", "math"] };

// One of the answers that dispatch_detective.py packed: numbers that are places in the tables of values and rows.
function unpack({ answers, values, rows }, n) {
  const names = Object.keys(values), fields = names.map((name, i) => [name, values[name][answers[n][i]]]);
  return { ...Object.fromEntries(fields), rows: answers[n].slice(names.length).map((i) => rows[i]) };
}

// The answer to a call on the axes: [[field, choices], ...], the last varies fastest; `index` is [[times, answer], ...].
export function lookUp(axes, packed, call) {
  let at = 0;
  for (const [name, choices] of axes) {
    const i = choices.indexOf(call[name]);
    if (i < 0) return null;
    at = at * choices.length + i;
  }
  for (const [times, number] of packed.index) {
    if (at < times) return unpack(packed, number);
    at -= times;
  }
  return null;
}

// The call as Python.
export function asPython(c, device = "cpu") {
  const dropout = c.training ? c.dropout_p : 0, mask = c.mask === "none" || c.mask === "causal" ? "" : "attn_mask=mask";
  const said = [mask, c.mask === "causal" ? "is_causal=True" : "", dropout ? `dropout_p=${dropout}` : "", c.enable_gqa ? "enable_gqa=True" : ""];
  const place = device === "cuda" ? ", device=\"cuda\"" : "", kind = `, dtype=torch.${c.dtype}${place}`, grad = c.requires_grad ? ", requires_grad=True" : "";
  const lines = [`q = torch.randn(${c.B}, ${c.Hq}, ${c.Nq}, ${c.D}${kind}${grad})`, `k = v = torch.randn(${c.B}, ${c.Hkv}, ${c.Nk}, ${c.D}${kind}${grad})`];
  if (mask) lines.push(`mask = ${c.mask === "bool" ? `torch.ones(${c.Nq}, ${c.Nk}, dtype=torch.bool${place})` : `torch.zeros(${c.Nq}, ${c.Nk}${kind}${c.mask === "learned" ? ", requires_grad=True" : ""})`}`);
  if (c.masked_rows) lines.push(c.mask === "bool" ? "mask[0] = False" : c.mask === "float" ? "mask[0] = -torch.inf" : "mask.data[0] = -torch.inf");
  return [...lines, `scaled_dot_product_attention(${["q", "k", "v", ...said.filter(Boolean)].join(", ")})`].join("\n");
}

// Was the guess right? Where the answer depends on the version, each candidate is.
export const rightGuess = (answer, guess) =>
  answer.refused ? guess === "error" : answer.choice ? guess === answer.choice : answer.candidates.includes(guess);

let made = 0;
function render({ model, el }) {
  const s = model.get("strings"), root = document.createElement("div"), id = `fl-detective-${made++}-${Math.random().toString(36).slice(2, 7)}`;
  Object.assign(root, { className: "fl-widget fl-detective", role: "group", ariaLabel: s.name });
  root.dataset.lmSuppressShortcuts = "true";
  el.append(root);
  if (model.get("error")) {
    root.innerHTML = `<p class="title sentence">${esc(model.get("error"))}</p>`;
    return () => root.remove();
  }
  const axes = model.get("axes"), packed = model.get("offline"), live = !axes.length, choices = Object.fromEntries(axes);
  let call = { ...model.get("call") }, device = model.get("device"), answer = model.get("answer"), guess = "", n = 0, waiting = 0;
  let table = false, predict = true, right = 0, guessed = 0;

  const select = (name, values, label = s[name]) => `<label>${esc(label)} <select name="${name}">${values.map((v) =>
    `<option value="${esc(v)}">${esc(s[`${name}_${v}`] ?? v)}</option>`).join("")}</select></label>`;
  const number = (name) => `<label>${esc(s[name])} <input name="${name}" inputmode="decimal" size="5" autocomplete="off"></label>`;
  const check = (name) => `<label><input type="checkbox" name="${name}"> ${esc(s[name])}</label>`;
  const size = (name) => (live ? number(name) : choices[name] ? select(name, choices[name]) : "");
  root.innerHTML = `<output class="title" aria-live="polite"></output>
    <div class="fields">
      <span role="radiogroup" aria-label="${esc(s.device)}">${["cpu", "cuda"].map((d) => `<label><input type="radio" name="${id}" value="${d}"> ${esc(s["device_" + d])}</label>`).join("")}</span>
      ${select("dtype", live ? DTYPES : choices.dtype)}${select("mask", live ? MASKS : choices.mask)}
      ${SIZES.map(size).join("")}${size("dropout_p")}
      ${FLAGS.filter((f) => live || choices[f]).map(check).join("")}
    </div>
    <p class="wrong" role="alert" hidden></p>
    <pre class="code" tabindex="0" aria-label="${esc(s.code)}"></pre>
    <div class="guess" role="group" aria-label="${esc(s.ask)}"></div>
    <div class="answer"><ol class="ladder"></ol><div class="table" tabindex="0" role="region" aria-label="${esc(s.as_table)}" hidden></div>
      <p class="refused"></p><p class="notes"></p><details class="kernels"><summary>${esc(s.kernels)}</summary><dl></dl></details><p class="source"></p></div>
    <div class="foot"><button type="button" data-do="table"></button><label><input type="checkbox" name="predict" checked> ${esc(s.predict)}</label><span class="score" aria-live="polite"></span></div>`;
  const $ = (q) => root.querySelector(q);
  const open = () => predict && !guess;

  const runs = { rules: "would", recorded: "ran" };
  const marked = (row) => s[`mark_${(mark(row) === "runs" && runs[answer.basis]) || mark(row)}`];
  const mark = (row) => (row.backend === answer.choice ? (answer.refused ? "raises" : "runs") : row.can === null ? "open" : row.can ? "later" : "no");
  function drawAnswer() {
    $(".answer").hidden = open() || !!waiting;
    if (open() || waiting) return;
    const words = answer.basis === "rules" ? s.check : s.pytorch;
    $(".ladder").innerHTML = answer.rows.map((row) => {
      const kind = mark(row), reasons = row.reasons.map((r) => `<code>${esc(r)}</code>`).join("");
      return `<li class="${kind}"><span class="name">${esc(s["backend_" + row.backend])}</span><span class="verdict">${esc(marked(row))}</span>
        <span class="why">${row.said.map((x) => `<span>${esc(x)}</span>`).join("")}${reasons ? `<small>${esc(words)}: ${reasons}</small>` : ""}</span></li>`;
    }).join("");
    $(".table").innerHTML = `<table><caption>${esc(answer.headline)}</caption><thead><tr>${["backend", "verdict", answer.basis === "rules" ? "check" : "pytorch", "means"]
      .map((h) => `<th scope="col">${esc(s[h])}</th>`).join("")}</tr></thead><tbody>${answer.rows.map((row) =>
      `<tr><th scope="row">${esc(s["backend_" + row.backend])}</th><td>${esc(marked(row))}</td><td>${row.reasons.map(esc).join("<br>")}</td><td>${row.said.map(esc).join("<br>")}</td></tr>`).join("")}</tbody></table>`;
    $(".refused").textContent = answer.refused;
    $(".refused").hidden = !answer.refused;
    $(".notes").textContent = answer.notes.join(" ");
    $(".kernels").hidden = !answer.kernels.length;
    $(".kernels dl").innerHTML = answer.kernels.map(([part, names]) => `<dt>${esc(part)}</dt>${names.map((n) => `<dd><code>${esc(n)}</code></dd>`).join("")}`).join("");
    $(".source").textContent = answer.source;
    $(".ladder").hidden = table;
    $(".table").hidden = !table;
  }
  function draw() {
    for (const input of root.querySelectorAll(".fields [name]")) {
      if (input.type === "radio") input.checked = input.value === device;
      else if (input.type === "checkbox") input.checked = call[input.name];
      else input.value = call[input.name];
    }
    $(".code").textContent = asPython(call, device);
    const names = [...BACKENDS[device], "error"], known = !waiting && !open();
    $(".guess").innerHTML = names.map((b) => {
      const good = known && rightGuess(answer, b);
      return `<button type="button" data-guess="${b}" aria-pressed="${guess === b}" class="${known ? (good ? "good" : guess === b ? "bad" : "") : ""}" ${waiting ? "disabled" : ""}>${esc(s["backend_" + b])}${known && good ? " ✓" : known && guess === b ? " ✗" : ""}</button>`;
    }).join("");
    const verdict = guess && !waiting ? `${rightGuess(answer, guess) ? s.right : s.not_right} ` : "";
    $(".title").textContent = waiting ? s.waiting : open() ? s.ask : verdict + answer.headline;
    $(".score").textContent = guessed ? put(s.score, { right, guessed }) : "";
    $("[data-do=table]").textContent = table ? s.as_picture : s.as_table;
    $("[data-do=table]").disabled = open();
    drawAnswer();
  }
  function question() { // the fields changed
    guess = "";
    const found = live ? null : lookUp(axes, packed[device], call);
    if (found) answer = found;
    for (const [trait, value] of [["call", { ...call }], ["device", device]]) if (!live) model.set(trait, value);
    if (live) {
      clearTimeout(waiting);
      waiting = setTimeout(() => say(s.no_answer), 6000);
      model.set("asked", { call: { ...call }, device, n: ++n });
    }
    model.save_changes();
    draw();
  }
  function say(words) {
    $(".wrong").hidden = !words;
    $(".wrong").textContent = words;
  }
  root.addEventListener("change", ({ target }) => {
    if (target.name === "predict") return void ((predict = target.checked), draw());
    const before = JSON.stringify([call, device]);
    if (target.type === "radio") device = target.value;
    else if (target.type === "checkbox") call[target.name] = target.checked;
    else if (SIZES.includes(target.name) || target.name === "dropout_p") {
      const value = Number(target.value), whole = target.name !== "dropout_p";
      const fits = target.value.trim() !== "" && (whole ? Number.isInteger(value) && value >= 1 : value >= 0 && value < 1);
      target.toggleAttribute("aria-invalid", !fits);
      if (!fits) return say(put(whole ? s.wrong_size : s.wrong_dropout, { name: s[target.name], got: target.value }));
      call[target.name] = value;
    } else call[target.name] = target.value;
    if (call.masked_rows && !["bool", "float", "learned"].includes(call.mask)) call.masked_rows = false;
    say("");
    if (JSON.stringify([call, device]) !== before) question(); // a box tells twice: on Enter, and when it is left
  });
  root.addEventListener("keydown", (e) => e.key === "Enter" && e.target.matches("input[inputmode]") && (e.preventDefault(), e.target.dispatchEvent(new Event("change", { bubbles: true }))));
  root.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-guess]");
    if (button && !guess && predict) {
      guess = button.dataset.guess;
      (guessed++, (right += rightGuess(answer, guess)));
      draw();
      $(`[data-guess="${guess}"]`).focus();
    }
    if (target.closest("[data-do=table]")) ((table = !table), draw());
  });
  const heard = () => { // Python's answer
    const reply = model.get("answer");
    if (!live || reply.n !== n) return;
    clearTimeout(waiting);
    waiting = 0;
    say(reply.error ?? "");
    if (reply.error) [call, device] = [{ ...model.get("call") }, model.get("device")];
    else answer = reply;
    draw();
  };
  model.on("change:answer", heard);
  if (!live) answer = lookUp(axes, packed[device], call) ?? answer;
  draw();
  return () => (clearTimeout(waiting), model.off("change:answer", heard), root.remove());
}

export default { render };
