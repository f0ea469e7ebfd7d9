// The picture of BlockSchedule; the numbers come from schedule_numbers.js and the painting from
// schedule_picture.js, which are put in front of this file.
// The whole picture is painted once for a choice (offscreen); moving the time only covers what has not happened yet.

const esc = (s) => String(s).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const option = (value, text, now) => `<option value="${esc(value)}" ${String(value) === String(now) ? "selected" : ""}>${esc(text)}</option>`;
const BLOCKS = [16, 32, 64, 128, 256], MOST = 100000, LEFT = 46, BOTTOM = 22, PLAY_SECONDS = 6;
const TRAITS = ["gpu", "algorithm", "order", "splits", "programs_per_sm"];

function render({ model, el }) {
  const s = model.get("strings"), root = document.createElement("div"), still = matchMedia("(prefers-reduced-motion: reduce)");
  Object.assign(root, { className: "fl-widget fl-schedule", role: "group", ariaLabel: s.name });
  root.dataset.lmSuppressShortcuts = "true";
  el.append(root);
  if (model.get("error")) {
    root.innerHTML = `<p class="title sentence">${esc(model.get("error"))}</p>`;
    return () => root.remove();
  }
  const gpus = model.get("gpus"), given = model.get("problem"), lengths = model.get("lengths");
  const o = { ...Object.fromEntries(TRAITS.map((k) => [k, model.get(k)])), B: given.B, H: given.Hq, N: given.Nk, block_q: given.block_q, block_k: given.block_k, causal: given.causal !== false };
  const blocks = [...new Set([...BLOCKS, o.block_q, o.block_k])].sort((a, b) => a - b), parts = [...new Set([0, 1, 2, 4, 8, 16, 32, 64, o.splits])].sort((a, b) => a - b);
  let hidden = model.get("ask") && model.get("guess") < 0, guess = model.get("guess"), table = false, a = null, b = null, other = null, per = null;
  let at = 1, playing = false, raf = 0, timer = 0, W = 0, H = 0, picture = null, chosen = null, top = 1, dirty = false;

  const choose = (name, label, options) => `<label>${esc(label)} <select name="${name}">${options}</select></label>`;
  root.innerHTML = `<output class="title" aria-live="polite"></output>
    <div class="choices">
      ${choose("gpu", s.gpu, gpus.map((g) => option(g.name, g.name, o.gpu)).join(""))}
      ${choose("algorithm", s.algorithm, ["fa1", "fa2", "persistent", "decode"].map((x) => option(x, s[x], o.algorithm)).join(""))}
      <span class="only-causal">${choose("order", s.order, ["natural", "reversed", "longest-first"].map((x) => option(x, s[x], o.order)).join(""))}</span>
      <span class="only-decode">${choose("splits", s.splits, parts.map((x) => option(x, x || s.splits_auto, o.splits)).join(""))}</span>
      <label>${esc(s.batch)} <input type="number" name="B" min="1" max="4096" value="${o.B}"></label>
      <label>${esc(s.heads)} <input type="number" name="H" min="1" max="4096" value="${o.H}"></label>
      <label>${esc(s.n)} <input type="range" name="N" min="0" max="${lengths.length - 1}" step="1" value="${lengths.indexOf(o.N)}"><span class="at-n"></span></label>
      ${choose("block_q", s.block_q, blocks.map((x) => option(x, x, o.block_q)).join(""))}
      ${choose("block_k", s.block_k, blocks.map((x) => option(x, x, o.block_k)).join(""))}
      ${choose("programs_per_sm", s.per_sm, [...new Set([1, 2, o.programs_per_sm])].map((x) => option(x, x, o.programs_per_sm)).join(""))}
      <label class="not-decode"><input type="checkbox" name="causal" ${o.causal ? "checked" : ""}> ${esc(s.causal)}</label>
    </div>
    <div class="ask" role="group" aria-label="${esc(s.guess)}"><p></p><label>${esc(s.guess)} <input type="range" name="guess" min="0" max="100" step="1" value="50"><span class="at-guess">50%</span></label>
      <button type="button" data-do="show">${esc(s.show)}</button><button type="button" data-do="skip">${esc(s.skip)}</button></div>
    <div class="shown"><div class="facts"></div><div class="compare"></div>
      <div class="picture"><canvas tabindex="0" role="img"></canvas><p class="axis"></p></div>
      <div class="controls"><button type="button" data-do="play"></button><input type="range" name="time" min="0" max="1" step="0.001" value="1" aria-label="${esc(s.scrub)}"><span class="now"></span></div>
      <output class="what" aria-live="polite"></output>
      <div class="legend"><span>${esc(s.key_work)} ${esc(s.key_little)} <i class="k-work"></i> ${esc(s.key_much)}</span><span><i class="k-idle"></i>${esc(s.key_idle)}</span></div>
    </div>
    <div class="table" hidden tabindex="0" role="region" aria-label="${esc(s.caption)}"></div>
    <div class="foot"><button type="button" data-do="table"></button><button type="button" data-do="again">${esc(s.again)}</button><span class="keys">${esc(s.keys_help)}</span></div>`;
  const $ = (q) => root.querySelector(q), canvas = $("canvas"), what = $(".what");
  const clock = (t) => (a.step ? duration(t * a.step) : `${t < 100 ? +t.toPrecision(3) : Math.round(t).toLocaleString("en")} ${s.steps_unit}`);
  const decoding = () => o.algorithm === "decode";

  function bad() { // a sentence for a choice that cannot be, else null
    for (const [name, label] of [["B", s.batch], ["H", s.heads]])
      if (!Number.isInteger(o[name]) || o[name] < 1 || o[name] > 4096) return put(s.bad_number, { name: label, most: "4,096" });
    return null;
  }
  function compute() {
    const gpu = gpus.find((g) => g.name === o.gpu), group = given.Hq / given.Hkv, own = o.N === given.Nk;
    const p = {
      ...given, B: o.B, Hq: o.H, Hkv: o.H % group ? o.H : o.H / group, Nk: o.N, Nq: decoding() ? (given.Nq <= 16 ? given.Nq : 1) : own && given.Nq > 16 ? given.Nq : o.N,
      block_q: o.block_q, block_k: o.block_k, causal: o.causal ? given.causal || "top-left" : false,
    };
    const how = { order: o.causal && o.algorithm !== "fa1" ? o.order : "natural", splits: o.splits || null, persistent: o.algorithm === "persistent", perSm: o.programs_per_sm, causal: o.causal };
    const algorithm = how.persistent ? "fa2" : o.algorithm, run = (x, h) => simulate(p, x, decoding() ? { ...gpu, peak: null } : gpu, h);
    a = b = other = null;
    let sentence = bad();
    if (!sentence) {
      a = run(algorithm, how);
      if (!a) sentence = put(s.too_many, { most: MOST.toLocaleString("en") });
      else ({ name: other } = rival(algorithm, how, o.causal)), (b = run(rival(algorithm, how, o.causal).algorithm, rival(algorithm, how, o.causal).how));
    }
    if (a) {
      per = Array.from({ length: gpu.sms }, () => []);
      a.programs.forEach((q) => per[q.sm].push(q));
      top = a.items.work.reduce((x, y) => Math.max(x, y), 1);
    }
    chosen = null;
    return sentence ?? (hidden ? put(s.ask_short, { programs: a.programs.length.toLocaleString("en"), sms: gpu.sms }) : scheduleTitle(gpu, a, b, other, how, s));
  }
  function draw(fresh = true) {
    if (fresh) at = 1;
    const title = compute(), can = Boolean(a);
    $(".title").textContent = title;
    canvas.setAttribute("aria-label", title);
    $(".at-n").textContent = o.N.toLocaleString("en");
    $("[name=N]").setAttribute("aria-valuetext", put(s.tokens, { n: o.N }));
    $(".only-causal").hidden = !o.causal || decoding() || o.algorithm === "fa1";
    $(".only-decode").hidden = !decoding();
    $(".not-decode").hidden = decoding();
    $(".ask").hidden = !(hidden && can);
    $(".shown").hidden = hidden || !can || table;
    $(".table").hidden = hidden || !can || !table;
    $(".foot").hidden = hidden || !can;
    if (!can) return;
    $(".ask p").textContent = put(s.ask, { programs: a.programs.length.toLocaleString("en"), sms: a.sms.length });
    if (hidden) return;
    const says = put(s.guessed, { guess: `${guess}%`, busy: percent(a.utilisation) });
    const told = guess >= 0 && guess <= 100 ? `<span class="told">${esc(says)}${Math.abs(guess - 100 * a.utilisation) <= 5 ? ` ✓ ${esc(s.hit)}` : ""}</span>` : "";
    $(".facts").innerHTML = [[s.utilisation, percent(a.utilisation)], [s.waves, +a.waves.toFixed(2)], [s.tail, clock(a.tail)], [s.idle, clock(a.idle)]]
      .map(([name, x]) => `<span>${esc(name)} <b>${esc(x)}</b></span>`).join("") + told;
    const most = Math.max(a.makespan, b ? b.makespan : 0) || 1;
    const bar = (name, x, cls) => `<div><span>${esc(name)}</span><i class="${cls}" style="width:${(62 * x.makespan) / most}%"></i><b>${esc(clock(x.makespan))}</b></div>`;
    $(".compare").innerHTML = bar(s.this_launch, a, "mine") + (b ? bar(s["row_" + other], b, "theirs") : "");
    $(".axis").textContent = a.step ? s.axis_time : s.axis_steps;
    if (table) drawTable();
    else (paint(), cover());
  }
  function drawTable() {
    const rows = a.sms.map((x, m) => `<tr><th scope="row">${m}</th><td>${x.count}</td><td>${percent(a.makespan ? x.busy / a.makespan : 0)}</td><td>${esc(x.count ? clock(x.last) : "–")}</td></tr>`);
    $(".table").innerHTML = `<table><caption>${esc($(".title").textContent)}</caption><thead><tr>${["sm", "programs", "busy", "last"].map((h) => `<th scope="col">${esc(s["t_" + h])}</th>`).join("")}</tr></thead><tbody>${rows.join("")}</tbody></table>`;
  }

  // Painting. A colour of the style sheet is read through an element that has it (light-dark() is resolved there).
  function ink(name) {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    root.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }
  const rowHeight = () => Math.max(3 * o.programs_per_sm, Math.min(18, Math.floor(400 / a.sms.length)));
  const x = (t) => LEFT + ((W - LEFT - 2) * t) / (a.makespan || 1);
  function paint() {
    W = Math.floor($(".picture").getBoundingClientRect().width);
    if (W < 100) return (W = 0);
    const h = rowHeight(), dpr = Math.min(2, devicePixelRatio || 1), colours = ["--fl-idle", "--fl-line", "--fl-ink", "--fl-page", "--fl-w0", "--fl-w1", "--fl-v0", "--fl-v1"].map(ink);
    H = h * a.sms.length + BOTTOM;
    picture = document.createElement("canvas");
    for (const c of [picture, canvas]) Object.assign(c, { width: W * dpr, height: H * dpr });
    canvas.style.height = `${H}px`;
    const g = picture.getContext("2d");
    g.scale(dpr, dpr);
    const font = getComputedStyle(root).fontFamily;
    paintSchedule(g, a, { W, h, left: LEFT, top, x, clock, colours, font, s });
  }
  function cover() { // the picture up to the time, what is to come pale, the chosen program outlined
    if (!picture || !W || hidden || table) return;
    const g = canvas.getContext("2d"), dpr = canvas.width / W, now = at * a.makespan, h = rowHeight();
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.clearRect(0, 0, canvas.width, canvas.height);
    g.drawImage(picture, 0, 0);
    g.setTransform(dpr, 0, 0, dpr, 0, 0);
    if (at < 1) {
      (g.fillStyle = ink("--fl-page")), (g.globalAlpha = 0.8);
      g.fillRect(x(now), 0, W - x(now), H - BOTTOM);
      (g.globalAlpha = 1), (g.fillStyle = ink("--fl-ink"));
      g.fillRect(x(now) - 1, 0, 2, H - BOTTOM);
    }
    if (chosen) {
      const slot = h / o.programs_per_sm;
      Object.assign(g, { strokeStyle: ink("--fl-ink"), lineWidth: 2 });
      g.strokeRect(x(chosen.start), h * chosen.sm + slot * chosen.slot - 1, Math.max(3, x(chosen.end) - x(chosen.start)), slot + 2);
    }
    let busy = 0, done = 0;
    for (const list of per) {
      let works = false;
      for (const q of list) (works ||= q.start <= now && now < q.end), (done += q.end <= now);
      busy += works;
    }
    const words = put(s.at, { time: clock(now), busy, sms: a.sms.length, done: done.toLocaleString("en"), programs: a.programs.length.toLocaleString("en") });
    $(".now").textContent = words;
    $("[name=time]").value = at;
    $("[name=time]").setAttribute("aria-valuetext", words);
    what.textContent = chosen ? tell(chosen) : s.point;
    $("[data-do=play]").textContent = playing ? s.pause : s.play;
  }
  function tell(q) {
    const i = a.items, n = decoding() ? i.head.reduce((m, v) => Math.max(m, v), 0) + 1 : o.B * o.H, heads = n / o.B, where = [put(s.what_head, { batch: Math.floor(i.head[q.item] / heads), head: i.head[q.item] % heads })];
    if (decoding()) where.push(put(s.what_split, { split: i.split[q.item] + 1 }));
    else if (o.algorithm !== "fa1") where.push(put(s.what_block, { block: i.block[q.item] }));
    return put(s.what, { sm: q.sm, start: clock(q.start), end: clock(q.end), head: where.join(", "), steps: i.work[q.item] });
  }
  const soon = () => { // one painting for a frame, however many moves it had
    if (!dirty) ((dirty = true), requestAnimationFrame(() => ((dirty = false), cover())));
  };
  function play(on) {
    playing = on;
    cancelAnimationFrame(raf);
    clearTimeout(timer);
    if (!on) return cover();
    if (at >= 1) at = 0;
    if (still.matches) { // ten still pictures instead of a movement
      const hop = () => (at >= 1 ? play(false) : ((at = Math.min(1, Math.round(10 * at + 1) / 10)), cover(), (timer = setTimeout(hop, 500))));
      return hop();
    }
    let last = performance.now();
    const frame = (now) => {
      if (!playing) return;
      at = Math.min(1, at + Math.max(0, now - last) / 1000 / PLAY_SECONDS);
      last = now;
      if (at >= 1) return play(false);
      cover();
      raf = requestAnimationFrame(frame);
    };
    cover();
    raf = requestAnimationFrame(frame);
  }
  const find = (e) => { // the program under the pointer
    const r = canvas.getBoundingClientRect(), h = rowHeight(), m = Math.floor((e.clientY - r.top) / h), t = ((e.clientX - r.left - LEFT) / (W - LEFT - 2)) * a.makespan;
    const slot = Math.floor(((e.clientY - r.top) % h) / (h / o.programs_per_sm));
    return per[m]?.find((q) => q.start <= t && t < q.end && q.slot === slot) ?? null;
  };
  canvas.addEventListener("pointermove", (e) => ((chosen = find(e)), soon()));
  canvas.addEventListener("pointerleave", () => ((chosen = null), soon()));
  canvas.addEventListener("keydown", (e) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
    if (!move || e.ctrlKey || e.metaKey || e.altKey) return;
    (e.preventDefault(), e.stopPropagation());
    if (!chosen) chosen = per[0][0];
    else if (move[1]) chosen = per[chosen.sm][per[chosen.sm].indexOf(chosen) + move[1]] ?? chosen;
    else {
      const list = per[chosen.sm + move[0]];
      if (list?.length) chosen = list.find((q) => q.end > chosen.start) ?? list.at(-1);
    }
    cover();
  });
  root.addEventListener("keydown", (e) => {
    if (e.key !== " " || /BUTTON|SELECT/.test(e.target.tagName) || /checkbox|number/.test(e.target.type) || hidden) return;
    (e.preventDefault(), e.stopPropagation(), play(!playing));
  });
  const tell_python = () => model.save_changes();
  root.addEventListener("input", ({ target }) => {
    const name = target.name;
    if (name === "time") return playing && play(false), (at = +target.value), cover();
    if (name === "guess") return void ($(".at-guess").textContent = `${target.value}%`);
    if (!name) return;
    o[name] = name === "causal" ? target.checked : name === "N" ? lengths[+target.value] : ["gpu", "algorithm", "order"].includes(name) ? target.value : target.value === "" ? NaN : +target.value;
    if (playing) play(false);
    if (TRAITS.includes(name)) model.set(name, o[name]);
    draw();
  });
  root.addEventListener("change", tell_python);
  function reveal(value) {
    hidden = false;
    model.set("guess", (guess = value));
    tell_python();
    draw();
    canvas.focus({ preventScroll: true });
  }
  root.addEventListener("click", ({ target }) => {
    const what = target.closest("[data-do]")?.dataset.do;
    if (what === "show") reveal(+$("[name=guess]").value); // no form: the twin's frame may not submit one
    if (what === "skip") reveal(101); // 101: shown without a guess
    if (what === "play") play(!playing);
    if (what === "table") ((table = !table), play(false), label(), draw(false));
    if (what === "again") ((hidden = true), (guess = -1), play(false), model.set("guess", -1), tell_python(), draw(), $("[name=guess]").focus());
  });
  const label = () => ($("[data-do=table]").textContent = table ? s.as_picture : s.as_table);
  const heard = () => {
    const now = Object.fromEntries(TRAITS.map((k) => [k, model.get(k)]));
    if (TRAITS.every((k) => now[k] === o[k]) || !gpus.some((g) => g.name === now.gpu)) return;
    Object.assign(o, now);
    for (const k of TRAITS) $(`[name=${k}]`).value = o[k];
    draw();
  };
  for (const k of TRAITS) model.on(`change:${k}`, heard);
  const repaint = () => a && !hidden && !table && (paint(), cover());
  const size = new ResizeObserver(() => Math.floor($(".picture").getBoundingClientRect().width) !== W && repaint());
  const scheme = matchMedia("(prefers-color-scheme: dark)"), themes = new MutationObserver(repaint);
  scheme.addEventListener("change", repaint);
  for (const node of [document.documentElement, document.body]) themes.observe(node, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
  label();
  draw();
  size.observe($(".picture"));
  return () => {
    cancelAnimationFrame(raf);
    clearTimeout(timer);
    (size.disconnect(), themes.disconnect(), scheme.removeEventListener("change", repaint));
    for (const k of TRAITS) model.off(`change:${k}`, heard);
    root.remove();
  };
}

export default { render };
