// The picture of SoftmaxStepper; the numbers come from softmax_numbers.js, which is put in front of this file.
// Position p: frame n = ceil(p) is p - (n - 1) of the way in. Frame 0: nothing seen; 2b + 1: block b is here and the
// old part is converted; 2b + 2: the new part has landed. Python hears whole positions only.

const esc = (s) => String(s).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const ease = (t) => (t < 0.5 ? 2 * t * t : 1 - 2 * (1 - t) ** 2);
const mix = (a, b, t) => a + (b - a) * t;
const text = (x, y, cls, s, more = "") => `<text x="${x}" y="${y}" class="${cls}" ${more}>${esc(s)}</text>`;
const rect = (x, y, w, h, cls, more = "") =>
  `<rect x="${Math.min(x, x + w)}" y="${y}" width="${Math.abs(w)}" height="${h}" class="${cls}" ${more}/>`;

// The keys in their blocks: score as a dot over its stem, the running max as a line.
function strip(v, blocks, W, t, c, s) {
  const n = v.scores.length, left = 76, gap = n > 24 ? 3 : 8, cell = (W - left - gap * (blocks.length - 1)) / n;
  const crowded = cell < 34, all = [...v.scores, ...blocks.map((k) => k.m)].filter((x) => !masked(x) && Number.isFinite(x));
  const low = Math.min(...all), top = Math.max(...all), Y0 = 104, y = (x) => Y0 - 8 - (54 * (x - low)) / (top - low || 1);
  const tall = crowded ? 22 + 7.6 * Math.max(...v.labels.map((name) => name.length + 6)) : 62, H = Math.ceil(Y0 + tall + 4);
  const xOf = (j) => left + cell * j + gap * blocks.findIndex((k) => j < k.to) + cell / 2;
  const line = masked(v.m) || v.m === -Infinity ? 0 : y(v.m);
  let out = text(0, Y0 + 18, "dim", s.key) + text(0, Math.abs(line - 46) > 18 ? 50 : Y0 - 12, "dim", s.score);
  if (!crowded) out += text(0, Y0 + 37, "dim", s.value) + text(0, Y0 + 56, "dim", s.weight);
  blocks.forEach((k, i) => {
    const x = xOf(k.from) - cell / 2, w = cell * (k.to - k.from), state = i === v.b ? "now" : i < v.b ? "past" : "todo";
    out += rect(x, 18, w, H - 18, `block ${state}`, 'rx="6"');
    const name = fill(s.block_name, { b: i + 1 });
    if (w > 52 || i === v.b) out += text(x + w / 2, 12, `mid ${i === v.b ? "strong" : "dim"}`, name);
  });
  if (line) {
    const start = v.oldM === -Infinity ? Y0 : y(v.oldM), at = v.phase === "convert" ? mix(start, line, ease(Math.min(1, t / 0.35))) : line;
    out += `<path class="max" d="M${left - 6} ${at}H${W}"/>` + text(0, at + 4, "max-ink", `${s.max_line} ${number(v.m)}`);
  }
  v.scores.forEach((score, j) => {
    const x = xOf(j), now = j >= v.from && j < v.to, state = now ? "now" : j < v.from ? "past" : "todo";
    const none = masked(score), at = none ? Y0 - 2 : y(score), name = v.labels[j];
    if (!none) out += `<path class="stem ${state}" d="M${x} ${Y0}V${at}"/><circle class="dot ${state}" cx="${x}" cy="${at}" r="${crowded ? 3 : 4.5}"/>`;
    if (crowded) {
      const label = now ? `${name}  ${number(score, 3)}` : name;
      out += text(x + 4, Y0 + 8, `${state} down ${now ? "strong" : "dim"}`, label, `transform="rotate(90 ${x + 4} ${Y0 + 8})" text-anchor="start"`);
      return;
    }
    const cls = `mid ${state} ${now ? "" : "dim"}`;
    out += text(x, at - 9, cls + (now ? " strong" : ""), number(score)) + text(x, Y0 + 18, cls, name) + text(x, Y0 + 37, cls, number(v.values[j][c]));
    if (now) out += text(x, Y0 + 56, cls + " strong", rate(v.k.p[j - v.from], v.unit));
  });
  return { H, svg: out };
}

// One bar: the old part (hatched) shrinks inside its dashed outline, then the new part lands at its end.
function bar(q, range, W, t, id) {
  const [lo, hi] = range, x = (a) => 2 + ((W - 4) * (Math.max(lo, Math.min(hi, a)) - lo)) / (hi - lo || 1);
  const Y = 6, H = 30, u = q.phase === "convert" ? ease(Math.max(0, (t - 0.35) / 0.65)) : 1;
  const kept = mix(q.old, q.kept, u), zero = x(0);
  let out = `<path class="axis" d="M${zero} ${Y - 4}V${Y + H + 4}"/>`;
  if (![q.old, q.kept, q.now].every(Number.isFinite)) return out + text(zero + 8, Y + 20, "bad-ink", "NaN");
  const moved = Math.abs(q.old - q.kept) > 1e-12 * (1 + Math.abs(q.old));
  out += rect(zero, Y, x(kept) - zero, H, "old", `fill="url(#${id})"`);
  if (q.phase === "convert" && moved) {
    out += rect(zero, Y, x(q.old) - zero, H, "ghost");
    const from = x(q.old), to = x(kept), mid = (from + to) / 2, room = Math.abs(from - to);
    if (room > 26) out += `<path class="arrow" d="M${from + (from > to ? -6 : 6)} ${Y + H / 2}H${to + (from > to ? 8 : -8)}" marker-end="url(#${id}h)"/>`;
    if (room > 44) out += rect(mid - 24, Y + 3, 48, H - 6, "plate") + text(mid, Y + 21, "mid big", `× ${q.rate}`);
  }
  if (q.phase === "add") {
    const a = x(q.kept), b = x(q.now), back = (b - a) * (a - zero) < 0;
    out += rect(a, Y - 26 * (1 - ease(t)) + (back ? 7 : 0), b - a, back ? H - 14 : H, "new", `opacity="${Math.min(1, 0.15 + t * 1.6)}"`);
    out += `<path class="total" d="M${b} ${Y - 5}V${Y + H + 5}"/>`;
  } else if (q.phase === "convert") out += `<path class="total" d="M${x(kept)} ${Y - 5}V${Y + H + 5}"/>`;
  return out;
}

let made = 0;
const icon = (d) => `<svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true"><path d="${d}" fill="currentColor"/></svg>`;
const ICONS = {
  home: icon("M3 3h2v10H3zM13 3v10L6 8z"), back: icon("M11 3v10L4 8z"), play: icon("M4 2l9 6-9 6z"),
  pause: icon("M4 3h3v10H4zM9 3h3v10H9z"), forward: icon("M5 3v10l7-5z"), end: icon("M11 3h2v10h-2zM3 3v10l7-5z"),
};
const SWITCHES = [["sum", "sum_off"], ["acc", "acc_off"], ["upside_down", "upside_off"], ["max_at_0", "zero_off"]];

function render({ model, el }) {
  const s = model.get("strings"), scores = model.get("scores"), values = model.get("values"), given = model.get("unit");
  const frames = model.get("frames"), block = model.get("block"), names = model.get("row_names"), id = `fls${Date.now()}-${made++}`;
  const last = 2 * Math.ceil(values.length / block), still = matchMedia("(prefers-reduced-motion: reduce)");
  let unit = given;
  const rows = scores.map((x, r) => ({
    scores: x, values, unit, labels: model.get("labels"), name: names[r] ?? fill(s.row_default, { r: r + 1 }),
  }));
  let p = model.get("step"), c = model.get("component"), off = [...model.get("knock_out")];
  let runs, ranges, shown = null, playing = false, table = false, raf = 0, timer = 0, W = 640, committed = p, goal = null;

  const root = document.createElement("div");
  Object.assign(root, { className: "fl-widget fl-stepper", role: "group", ariaLabel: s.name });
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab would scroll the notebook on space
  root.innerHTML = `
    <output class="title" data-rows="${rows.length}"></output>
    <div class="rows ${rows.length > 1 && values.length <= 12 ? "wide" : ""}" data-rows="${rows.length}"></div><div class="table" hidden></div>
    <div class="legend"><span><i class="k-old"></i>${esc(s.legend_old)}</span><span><i class="k-new"></i>${esc(s.legend_new)}</span>
      <span><i class="k-before"></i>${esc(s.legend_before)}</span></div>
    <div class="controls">
      ${["home", "back", "play", "forward", "end"].map((b) => `<button type="button" data-do="${b}" ${/home|end/.test(b) ? `aria-label="${esc(s[b])}" title="${esc(s[b])}"` : ""}>${ICONS[b]}${/home|end/.test(b) ? "" : `<span>${esc(s[b])}</span>`}</button>`).join("")}
      <input type="range" min="0" max="${last}" step="any" aria-label="${esc(s.scrub)}">
    </div>
    <fieldset><legend>${esc(s.break_it)}</legend>${SWITCHES.map(([k, t]) => `<label><input type="checkbox" value="${k}"> ${esc(s[t])}</label>`).join("")}</fieldset>
    <div class="foot"><button type="button" data-do="table"></button><span>${esc(s.keys_help)}</span><span class="picks">
      <label>${esc(s.base)} <select name="unit"><option value="log2">2</option><option value="e">e</option></select></label>
      ${values[0].length > 1 ? `<label>${esc(s.component)} <select name="component">${values[0].map((_, i) => `<option>${i}</option>`).join("")}</select></label>` : ""}</span></div>`;
  el.append(root);
  const $ = (q) => root.querySelector(q), $$ = (q) => [...root.querySelectorAll(q)];
  const title = $(".title"), scrub = $("input[type=range]"), box = $(".rows");
  box.innerHTML = rows.map((r) => `<section>${rows.length > 1 ? `<div class="row-name">${esc(r.name)}</div>` : ""}
    <svg class="strip" role="img"></svg><div class="rate"></div>
    <div class="line l"></div><svg class="bar l" aria-hidden="true" height="42"></svg>
    <div class="line acc"></div><svg class="bar acc" aria-hidden="true" height="42"></svg><div class="answer"></div></section>`).join("");
  $("[name=unit]").value = unit;
  if ($("[name=component]")) $("[name=component]").value = c;
  $$("[type=checkbox]").forEach((b) => (b.checked = off.includes(b.value)));

  const views = (n) => rows.map((r, i) => view(r, runs[i], frames[i], n, c));
  function compute() {
    const scale = unit === given ? 1 : unit === "e" ? Math.LN2 : Math.LOG2E; // the same weights in the other base
    runs = rows.map((r, i) => {
      Object.assign(r, { unit, scores: scores[i].map((x) => (masked(x) ? x : x * scale)) });
      const blocks = run(r.scores, values, block, unit, off);
      if (!off.length) blocks.forEach((k, b) => { // nothing knocked out: Python's numbers
        const f = frames[i][b];
        Object.assign(k, { m: masked(f.m) ? -Infinity : f.m * scale, alpha: f.alpha, l: f.l, acc: [...f.acc, k.acc.at(-1)] });
      });
      return blocks;
    });
    const span = (get) => { // one scale for the whole run and for all rows, so that lengths can be compared
      const all = runs.flat().flatMap((k) => get(k)).filter(Number.isFinite);
      return [Math.min(0, ...all), Math.max(0, ...all)];
    };
    ranges = { l: span((k) => [k.kept.l, k.l]), acc: span((k) => [k.kept.acc[c], k.acc[c]]) };
  }
  const quantity = (v, name) => {
    if (v.b < 0) return { phase: "start", old: 0, kept: 0, now: 0 };
    const of = (o) => (name === "l" ? o.l : o.acc[c]), by = name === "l" ? v.k.onSum : v.k.onAcc;
    return { name, phase: v.phase, old: of(v.k.old), kept: of(v.k.kept), now: of(v.k), by, rate: rate(by, unit) };
  };
  function words(n) { // everything that changes only from frame to frame
    const all = views(n), head = sentence(all, s, unit);
    title.textContent = head;
    title.setAttribute("aria-live", playing ? "off" : "polite");
    scrub.setAttribute("aria-valuetext", head);
    $("[data-do=home]").disabled = $("[data-do=back]").disabled = n === 0;
    $("[data-do=end]").disabled = $("[data-do=forward]").disabled = n === last;
    $$("section").forEach((box, i) => {
      const v = all[i], put = (q, html) => (box.querySelector(q).innerHTML = html);
      box.querySelector(".strip").setAttribute("aria-label", head);
      const max = v.phase === "convert" && v.oldM !== v.m ? `${number(v.oldM)} → <b>${number(v.m)}</b>` : `<b>${number(v.m)}</b>`;
      put(".rate", `<span>${esc(s.row_max)} = ${max}</span>` + conversion(v));
      for (const [name, label] of [["l", s.row_sum], ["acc", s.accumulator]]) put(`.line.${name}`, `<b>${esc(label)}</b> ${story(quantity(v, name), v)}`);
      put(".answer", answer(v));
    });
    if (table) drawTable();
  }
  function conversion(v) {
    if (v.phase !== "convert") return "";
    if (v.empty) return `<span class="dim">${esc(s.empty_book)}</span>`;
    if (isOne(v.alpha)) return `<span class="dim">${esc(s.nothing)}</span>`;
    const [a, b] = [number(v.m), number(v.oldM)], base = unit === "log2" ? "2" : "e";
    const power = `${b} − ${a.startsWith(MINUS) ? `(${a})` : a}`;
    const formula = off.includes("upside_down") ? `<s>${base}<sup>${power}</sup></s> 1/α` : `${base}<sup>${power}</sup>`;
    return `<span class="alpha">${fill(esc(s.convert_by), { formula })} <strong>${rate(off.includes("upside_down") ? 1 / v.alpha : v.alpha, unit)}</strong></span>`;
  }
  function story(q, v) {
    if (q.phase === "start") return "0";
    if (q.phase === "add") {
      const add = q.now - q.kept, few = v.k.p.length <= 3, of = (w, i) => rate(w, unit) + (q.name === "l" ? "" : ` · ${number(values[v.from + i][c])}`);
      const sum = few ? `+ (${v.k.p.map(of).join(" + ")})` : `${add < 0 ? MINUS : "+"} ${number(Math.abs(add))}`;
      return `${number(q.kept)} <span class="add">${sum}</span> = <b>${number(q.now)}</b>`;
    }
    if (v.empty) return number(q.kept);
    if (isOne(q.by)) return isOne(v.alpha) ? `<b>${number(q.kept)}</b>` : `<b>${number(q.kept)}</b> <span class="bad">${esc(s.not_converted)}</span>`;
    return `${number(q.old)} × <b>${q.rate}</b> = <b>${number(q.kept)}</b>${off.includes("upside_down") ? ` <span class="bad">${esc(s.upside)}</span>` : ""}`;
  }
  function answer(v) {
    if (v.seen === 0) return `<span class="dim">${esc(s.nobody)}</span>`;
    const verdict = v.agrees ? `<span class="good">✓ ${esc(s.agree)}</span>` : `<span class="bad">✗ ${esc(fill(s.differ, { x: number(v.off) }))}</span>`;
    return `<span><b>${esc(s.answer)}</b> acc/ℓ = <b class="out">${number(v.out)}</b></span>
      <span>${esc(fill(s.reference, { n: v.seen }))}: <b>${number(v.ref)}</b></span>${verdict}<span class="dim">${esc(s.mass)} ${number(v.mass)}</span>`;
  }
  function drawTable() {
    const cols = ["t_block", "t_keys", "t_max", "t_alpha", "t_sum", "t_acc", "t_out", "t_ref", "t_mass"], now = Math.ceil(p);
    $(".table").innerHTML = rows.map((r, i) => `<table><caption>${esc(rows.length > 1 ? r.name : s.name)}</caption><thead><tr>${cols.map((k) => `<th scope="col">${esc(s[k])}</th>`).join("")}</tr></thead><tbody>${
      runs[i].map((k, b) => {
        const v = view(r, runs[i], frames[i], 2 * b + 2, c), keys = v.labels.slice(k.from, k.to).join(" ");
        const cells = [esc(keys), number(v.m), rate(k.alpha, unit), number(v.l), number(v.acc), `${number(v.out)} ${v.agrees ? "✓" : "✗"}`, number(v.ref), number(v.mass)];
        return `<tr ${Math.ceil(now / 2) - 1 === b ? 'aria-current="step"' : ""}><th scope="row">${b + 1}</th>${cells.map((x) => `<td>${x}</td>`).join("")}</tr>`;
      }).join("")}</tbody></table>`).join("");
  }
  function draw() {
    const n = Math.ceil(p), t = n === 0 ? 1 : p - (n - 1);
    if (n !== shown) words((shown = n));
    scrub.value = p;
    if (table) return;
    const all = views(n);
    $$("section").forEach((box, i) => {
      const picture = strip(all[i], runs[i], W, t, c, s), svg = box.querySelector(".strip");
      (svg.setAttribute("height", picture.H), (svg.innerHTML = picture.svg));
      for (const name of ["l", "acc"]) box.querySelector(`.bar.${name}`).innerHTML = bar(quantity(all[i], name), ranges[name], W, t, id);
    });
  }
  // Movement: `p` runs to a whole position; Python is told once, at the end of what the learner did.
  const stop = () => (cancelAnimationFrame(raf), clearTimeout(timer), (goal = null));
  const commit = () => {
    const n = Math.ceil(p - 1e-9);
    if (n !== committed) (model.set("step", (committed = n)), model.save_changes());
  };
  const jump = (to) => (stop(), (p = to), draw());
  function glide(to, then) {
    stop();
    goal = to; // a second press before the first has arrived goes on from here
    const from = p, n = Math.max(Math.ceil(from), to), start = performance.now();
    const shrinks = n % 2 && views(n).some((v) => !v.empty && !isOne(v.alpha)), time = (shrinks ? 1300 : n % 2 ? 450 : 750) * Math.abs(to - from);
    if (still.matches || table) return (jump(to), then?.());
    const frame = (now) => {
      const t = Math.min(1, Math.max(0, (now - start) / time));
      p = t === 1 ? to : mix(from, to, t);
      draw();
      if (t < 1) return (raf = requestAnimationFrame(frame));
      goal = null;
      then?.();
    };
    raf = requestAnimationFrame(frame);
  }
  function play(on, tell = true) {
    playing = on;
    stop();
    $("[data-do=play]").innerHTML = `${ICONS[on ? "pause" : "play"]}<span>${esc(s[on ? "pause" : "play"])}</span>`;
    title.setAttribute("aria-live", on ? "off" : "polite");
    if (!on) return tell && commit();
    if (p >= last) jump(0);
    const next = () => (p >= last ? play(false) : glide(Math.floor(p) + 1, () => (timer = setTimeout(next, still.matches ? 1500 : 700))));
    next();
  }
  const to = (n) => {
    if (playing) play(false);
    n = Math.max(0, Math.min(last, n));
    glide(n, commit);
  };
  const act = {
    home: () => (playing && play(false), jump(0), commit()), end: () => (playing && play(false), jump(last), commit()),
    back: () => to(Math.ceil(goal ?? p) - 1), forward: () => to(Math.floor(goal ?? p) + 1), play: () => play(!playing),
    table: () => {
      table = !table;
      box.hidden = table;
      $(".table").hidden = !table;
      $(".legend").hidden = table;
      $("[data-do=table]").textContent = table ? s.as_picture : s.as_table;
      if (table) drawTable();
      draw();
    },
  };
  root.addEventListener("click", (e) => act[e.target.closest("[data-do]")?.dataset.do]?.());
  root.addEventListener("keydown", (e) => {
    const tag = e.target.tagName, name = { ArrowRight: "forward", ArrowLeft: "back", Home: "home", End: "end", " ": "play" }[e.key];
    if (!name || e.ctrlKey || e.metaKey || e.altKey || tag === "SELECT") return;
    if (name === "play" && (tag === "BUTTON" || e.target.type === "checkbox")) return; // their own key
    e.preventDefault();
    e.stopPropagation();
    act[name]();
  });
  scrub.addEventListener("input", () => (playing && play(false), jump(+scrub.value)));
  scrub.addEventListener("change", () => to(Math.round(p)));
  root.addEventListener("change", (e) => {
    if (e.target.type === "checkbox") {
      off = SWITCHES.map(([k]) => k).filter((k) => $(`[value=${k}]`).checked);
      model.set("knock_out", off);
    } else if (e.target.name === "component") model.set("component", (c = +e.target.value));
    else if (e.target.name === "unit") unit = e.target.value;
    else return;
    model.save_changes();
    compute();
    shown = null;
    draw();
  });
  const heard = () => {
    const n = model.get("step");
    if (n === committed) return;
    if (playing) play(false, false); // Python has just said where to be
    glide((committed = n));
  };
  model.on("change:step", heard);
  const size = new ResizeObserver(() => {
    const width = Math.floor(box.querySelector("svg")?.getBoundingClientRect().width || 0);
    if (width > 0 && width !== W) ((W = width), draw());
  });
  const defs = `<svg width="0" height="0" aria-hidden="true" class="defs"><defs><pattern id="${id}" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
    <rect width="7" height="7" class="hatch-a"/><rect width="2" height="7" class="hatch-b"/></pattern>
    <marker id="${id}h" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" class="head"/></marker></defs></svg>`;
  root.insertAdjacentHTML("beforeend", defs);
  $("[data-do=table]").textContent = s.as_table;
  (compute(), draw(), size.observe(box));
  return () => (stop(), size.disconnect(), model.off("change:step", heard), root.remove());
}

export default { render };
