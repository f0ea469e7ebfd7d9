// The page of PipelineTimeline; numbers and sentences come from pipeline_numbers.js, the SVG from pipeline_picture.js, which
// are put in front of this file.

const choice = (name, label, options) => `<label>${safe(label)} <select name="${name}">${options.map(([value, text]) => `<option value="${value}">${safe(text)}</option>`).join("")}</select></label>`;
let opened = 0;

function render({ model, el }) {
  const s = model.get("strings"), root = document.createElement("div"), id = `flpipe${opened++}${Math.random().toString(36).slice(2, 6)}`;
  Object.assign(root, { className: "fl-widget fl-pipeline", role: "group", ariaLabel: s.name });
  root.dataset.lmSuppressShortcuts = "true";
  el.append(root);
  if (model.get("error")) {
    root.innerHTML = `<p class="title sentence">${safe(model.get("error"))}</p>`;
    return () => root.remove();
  }
  const packed = model.get("logs"), made = model.get("made"), rates = model.get("measured"), unpacked = {}, CHOICES = ["step", "above", "D", "causal"];
  const dims = [...new Set(Object.keys(packed).map((name) => parseInt(name)))].sort((a, b) => a - b), key = (o) => `${o.D}${o.causal ? " causal" : ""}`;
  const o = Object.fromEntries(CHOICES.map((name) => [name, model.get(name)]));
  let hidden = model.get("ask") && model.get("guess_share") < 0, table = false, where = "steady", view = [0, 1], clock = 0, chosen = null, W = 0;
  const steps = [1, 2, 3, 4, 5].map((n) => [n, put(s.step, { n })]);
  root.innerHTML = `<output class="title" aria-live="polite"></output><p class="more"></p><p class="compared"></p>
    <div class="choices">${choice("above", s.upper, [[0, s.nothing_above], ...steps])}${choice("step", s.lower, steps)}${choice("D", s.head_dim, dims.map((d) => [d, d]))}
      <label><input type="checkbox" name="causal"> ${safe(s.causal)}</label></div>
    <div class="ask" role="group" aria-label="${safe(s.guess_unit)}"><p></p>
      <span role="radiogroup" aria-label="${safe(s.guess_unit)}"><b>${safe(s.guess_unit)}</b>${UNITS.map((unit) => `<label><input type="radio" name="${id}" value="${unit}"> ${safe(s.unit[unit])}</label>`).join("")}</span>
      <label><b>${safe(s.guess_share)}</b> <input type="range" name="guess" min="0" max="100" value="50"><span class="at-guess">50 %</span></label>
      <span><button type="button" data-do="show" disabled>${safe(s.show)}</button> <button type="button" data-do="skip">${safe(s.skip)}</button></span></div>
    <p class="told"></p>
    <div class="shown"><div class="views" role="group" aria-label="${safe(s.in_view)}">${["whole", "steady", "between"].map((name) => `<button type="button" data-view="${name}">${safe(s[name])}</button>`).join("")}
        <button type="button" data-do="closer" aria-label="${safe(s.closer)}">+</button><button type="button" data-do="wider" aria-label="${safe(s.wider)}">−</button></div>
      <div class="picture" tabindex="0" role="group"></div>
      <output class="what" aria-live="polite"></output>
      <label class="scrub"><span>${safe(s.clock)} <b></b></span><input type="range" name="clock" min="0" step="1" aria-label="${safe(s.scrub)}"></label>
      <dl class="now"></dl>
      <p class="legend"><span><i class="copy"></i>${safe(s.key_copy)}</span><span><i class="zero"></i>${safe(s.key_zero)}</span><span><i class="one"></i>${safe(s.key_one)}</span><span class="only-two"><i class="two"></i>${safe(s.key_two)}</span><span class="only-own"><i class="own"></i>${safe(s.key_own)}</span><span><i class="wait"></i>${safe(s.key_waits)}</span><span><i class="idle"></i>${safe(s.key_idle)}</span><span>${safe(s.key_names)}</span></p></div>
    <div class="table" hidden tabindex="0" role="region" aria-label="${safe(s.as_table)}"></div>
    <div class="foot"><button type="button" data-do="table"></button><button type="button" data-do="again">${safe(s.again)}</button><span>${safe(s.keys_help)}</span></div>
    <p class="source"></p>`;
  const $ = (q) => root.querySelector(q), picture = $(".picture");
  const log = (step) => ((unpacked[key(o)] ??= packed[key(o)].map(unpackLog)), unpacked[key(o)][step - 1]);
  const shown = () => [...(o.above && o.above !== o.step ? [o.above] : []), o.step].map((step) => [step, log(step)]);
  const end = () => Math.max(...shown().map(([, x]) => x.end));

  function draw() {
    for (const name of CHOICES) name === "causal" ? ($("[name=causal]").checked = o.causal) : ($(`[name=${name}]`).value = o[name]);
    $("[name=causal]").disabled = !(key({ ...o, causal: !o.causal }) in packed);
    for (const option of $("[name=D]").options) option.disabled = !(key({ ...o, D: +option.value }) in packed);
    const subject = log(o.step), guess = model.get("guess_share"), unit = model.get("guess_unit");
    $(".title").textContent = hidden ? put(s.ask_title, o) : titleOf(shown(), s);
    $(".more").textContent = hidden ? "" : moreOf(shown(), s);
    $(".compared").textContent = hidden ? "" : comparedOf(shown(), rates, o.D, o.causal, s);
    $(".compared").hidden = !$(".compared").textContent;
    picture.setAttribute("aria-label", titleOf(shown(), s));
    $(".ask").hidden = !hidden;
    $(".ask p").textContent = put(s.ask, made);
    $(".shown").hidden = hidden || table;
    $(".table").hidden = hidden || !table;
    $(".foot").hidden = hidden;
    $(".foot span").hidden = table;
    $(".more").hidden = hidden;
    $(".told").hidden = hidden || guess < 0 || guess > 100;
    const most = busiest(subject), share = busy(subject, "tensor");
    const near = Math.abs(guess - 100 * share) <= 5;
    $(".told").classList.toggle("right", near && most.includes(unit));
    if (s.unit[unit]) $(".told").textContent = put(s.guessed, { unit: s.unit[unit], guess: `${guess}\u00a0%`, busy: percent(share), unit_right: most.includes(unit) ? s.yes : put(s.no, { most: most.map((u) => s.unit[u]).join(s.and) }), share_right: near ? s.share_yes : "" });
    $("[data-do=table]").textContent = table ? s.as_picture : s.as_table;
    $(".source").textContent = `${s.model} ${put([64, 128].includes(o.D) ? s.made : s.made_here, { ...made, timed: count(made.timed) })}`;
    $(".only-two").hidden = !shown().some(([, x]) => consumers(x).length > 2);
    $(".only-own").hidden = !shown().some(([step]) => step === 1);
    if (!hidden && table) drawTable();
    if (!hidden && !table) paint();
  }
  function look(name) { // one of the three views
    where = name;
    view = aroundOf(name);
    if (clock < view[0] || clock > view[1]) clock = Math.round((view[0] + view[1]) / 2);
    paint();
  }
  const aroundOf = (name) => {
    const [from, to] = pipelineView(shown().map(([, x]) => x), name);
    return [Math.max(0, from), Math.min(end(), to)];
  };
  function paint() {
    W = Math.floor(picture.clientWidth);
    if (W < 200) return;
    picture.innerHTML = shown().map(([step, x], i, all) => `<div class="step" data-step="${step}"><p class="head"><b>${safe(put(s.head, { step: put(s.step, { n: step }), what: s.short[step] }))}</b> <span>${safe(put(s.done, { clocks: count(x.end), blocks: x.blocks, rows: x.rows }))}</span> <span>${safe(measuredOf(rates, step, o.D, o.causal, s))}</span></p>${drawStep(x, view, W, { id: `${id}${i}`, s, last: i === all.length - 1, first: i === 0 })}</div>`).join("");
    for (const button of root.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", button.dataset.view === where);
    mark();
  }
  function mark() { // the clock's line, the chosen bar, the words about both
    const x = scale(view, W), lines = [];
    for (const part of picture.querySelectorAll(".step")) {
      const step = +part.dataset.step, at = x(clock), line = part.querySelector(".clock"), frame = part.querySelector(".chosen");
      for (const side of ["x1", "x2"]) line.setAttribute(side, clock >= view[0] && clock <= view[1] ? at : -9);
      const bar = chosen?.step === step && part.querySelector(`[data-lane="${chosen.lane}"][data-i="${chosen.i}"]`);
      frame.toggleAttribute("hidden", !bar);
      if (bar) for (const name of ["x", "y", "width", "height"]) frame.setAttribute(name, bar.getAttribute(name));
      lines.push(`<dt>${safe(put(s.step, { n: step }))}</dt>${now(log(step), clock, s).map(([lane, what]) => `<dd><b>${safe(lane)}</b> ${safe(what)}</dd>`).join("")}`);
    }
    $(".now").innerHTML = lines.map((line) => `<div>${line}</div>`).join("");
    const range = $("[name=clock]");
    Object.assign(range, { max: end(), value: clock });
    range.setAttribute("aria-valuetext", `${count(clock)}: ${shown().map(([step, x]) => `${put(s.step, { n: step })}: ${now(x, clock, s).map((pair) => pair.join(" ")).join(", ")}`).join("; ")}`);
    $(".scrub b").textContent = count(clock);
    const e = chosen && log(chosen.step).stretches[chosen.i];
    $(".what").textContent = e ? tell(e, chosen.step, s) : s.point;
  }
  function drawTable() {
    const all = [1, 2, 3, 4, 5].map((step) => [step, log(step)]), heads = all.map(([step]) => `<th scope="col">${safe(put(s.step, { n: step }))}</th>`).join("");
    const row = (name, cell) => `<tr><th scope="row">${safe(name)}</th>${all.map(([step, x]) => `<td>${safe(cell(x, step))}</td>`).join("")}</tr>`;
    const [rated, rate] = measuredRow(rates, all.map(([step]) => step), o.D, o.causal, s);
    const whole = [...UNITS.map((unit) => row(s.unit[unit], (x) => percent(busy(x, unit)))), row(s.t_inside, (x) => percent(busy(x, "tensor", middle(x)))), row(s.t_pause, (x) => count(pause(x))), row(s.t_clocks, (x) => count(x.end)), row(s.t_rows, (x) => x.rows), row(rated, (x, step) => rate[step - 1])];
    const name = (e) => `${e.who}|${e.op === "wgmma" ? (e.tile[0] === "k" ? "scores" : "output") : e.op.replace(/\[.*/, "")}`;
    const kinds = [...new Set(all.flatMap(([, x]) => x.stretches.filter((e) => e.unit === "wait").map(name)))].sort();
    const waits = kinds.map((k) => {
      const [who, what] = k.split("|"), known = (x) => x.stretches.some((e) => e.unit === "wait" && name(e) === k);
      return row(put(s.t_for, { who: s.who[who.replace(" ", "")], what: s.wait_kind[what] }), (x) => (known(x) ? percent(share(x, (e) => e.unit === "wait" && name(e) === k)) : "–"));
    });
    $(".table").innerHTML = [[s.t_unit, whole], [s.t_wait, waits]].map(([caption, rows]) => `<table><caption>${safe(caption)} (D = ${o.D}${o.causal ? ", causal" : ""})</caption><thead><tr><td></td>${heads}</tr></thead><tbody>${rows.join("")}</tbody></table>`).join("");
  }
  function zoom(factor) {
    view = zoomed(view, factor, Math.min(Math.max(clock, view[0]), view[1]), end());
    where = "";
    paint();
  }
  function choose(step, lane, i) {
    const e = log(step).stretches[i];
    chosen = { step, lane, i };
    if (clock < e.start || clock >= e.end) clock = e.start;
    const moved = follow(view, e.start, end());
    moved[0] === view[0] ? mark() : ((view = moved), (where = ""), paint());
  }
  function walk(dx, dy) { // along a lane, or to the same time in the lane above or below, through both steps
    const all = shown().flatMap(([step, x]) => lanes(x).map(([lane, stretches]) => ({ step, lane, stretches })));
    let at = all.findIndex((row) => row.step === chosen?.step && row.lane === chosen.lane);
    if (at < 0) ((at = 0), (dx = dy = 0));
    const row = all[Math.max(0, Math.min(all.length - 1, at + dy))], list = row.stretches;
    let n = dy || !chosen ? list.findLastIndex((e) => e.start <= clock) : list.findIndex((e) => e.i === chosen.i) + dx;
    if (Math.abs(dx) === Infinity) n = dx > 0 ? list.length - 1 : 0;
    const e = list[Math.max(0, Math.min(list.length - 1, n))];
    choose(row.step, row.lane, e.i);
  }
  picture.addEventListener("keydown", (e) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-Infinity, 0], End: [Infinity, 0] }[e.key];
    if ((!move && !"+=-".includes(e.key)) || e.ctrlKey || e.metaKey || e.altKey) return;
    (e.preventDefault(), e.stopPropagation());
    move ? walk(...move) : zoom(e.key === "-" ? 2 : 0.5);
  });
  const find = (e) => {
    const part = e.target.closest(".step"), bar = e.target.closest("[data-i]");
    return part && bar ? { step: +part.dataset.step, lane: laneAt(part, e), i: +bar.dataset.i } : null;
  };
  const laneAt = (part, e) => {
    const y = e.clientY - part.querySelector("svg").getBoundingClientRect().top;
    return layout(log(+part.dataset.step), view).rows.find((row) => y >= row.y && y <= row.y + row.height)?.name;
  };
  picture.addEventListener("pointermove", (e) => {
    const found = find(e);
    if (found && (found.i !== chosen?.i || found.step !== chosen?.step)) ((chosen = found), mark());
  });
  picture.addEventListener("click", (e) => {
    const svg = e.target.closest("svg");
    if (!svg) return;
    clock = Math.round(Math.max(0, Math.min(end(), clockAt(view, W, e.clientX - svg.getBoundingClientRect().left))));
    mark();
  });
  root.addEventListener("input", ({ target }) => {
    if (target.name === "guess") $(".at-guess").textContent = `${target.value} %`;
    if (target.name !== "clock") return;
    clock = +target.value;
    const moved = follow(view, clock, end());
    moved[0] === view[0] ? mark() : ((view = moved), (where = ""), paint());
  });
  root.addEventListener("change", ({ target }) => {
    if (target.name === id) $("[data-do=show]").disabled = false;
    if (!CHOICES.includes(target.name)) return;
    o[target.name] = target.name === "causal" ? target.checked : +target.value;
    model.set(target.name, o[target.name]);
    model.save_changes();
    fresh();
  });
  function fresh() { // other steps or another problem: the same kind of view
    chosen = null;
    view = aroundOf(where || "steady");
    where ||= "steady";
    clock = Math.round((view[0] + view[1]) / 2);
    draw();
  }
  function reveal(unit, guess) {
    hidden = false;
    (model.set("guess_unit", unit), model.set("guess_share", guess), model.save_changes());
    draw();
    picture.focus({ preventScroll: true });
  }
  root.addEventListener("click", ({ target }) => {
    const what = target.closest("[data-do]")?.dataset.do, to = target.closest("[data-view]")?.dataset.view;
    if (to) look(to);
    if (what === "closer") zoom(0.5);
    if (what === "wider") zoom(2);
    if (what === "show") reveal($(`[name=${id}]:checked`).value, +$("[name=guess]").value);
    if (what === "skip") reveal("", 101);
    if (what === "table") ((table = !table), draw());
    if (what === "again") ((hidden = true), model.set("guess_share", -1), model.save_changes(), draw(), $(`[name=${id}]`).focus());
  });
  const heard = () => {
    const said = Object.fromEntries(CHOICES.map((name) => [name, model.get(name)]));
    if (CHOICES.every((name) => said[name] === o[name]) || !(key(said) in packed)) return;
    Object.assign(o, said);
    fresh();
  };
  for (const name of CHOICES) model.on(`change:${name}`, heard);
  const size = new ResizeObserver(() => !hidden && !table && Math.floor(picture.clientWidth) !== W && paint());
  fresh();
  size.observe(picture);
  return () => (size.disconnect(), CHOICES.forEach((name) => model.off(`change:${name}`, heard)), root.remove());
}

export default { render };
