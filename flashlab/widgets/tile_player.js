// The picture of TilePlayer; tile_frames.js (states, words), tile_layout.js (places) and
// tile_stage.js (one player's canvases) stand in front of this file.
// Position p: bytes moved (each trace as far as that goes) or steps done. Two canvases a player: tiles in memory, painted
// when they change, and over them what is drawn anew in each frame. Python hears of positions where the reader stops.

const esc = (s) => String(s).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const icon = (d) => `<svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true"><path d="${d}" fill="currentColor"/></svg>`;
const ICONS = {
  home: icon("M3 3h2v10H3zM13 3v10L6 8z"), back: icon("M11 3v10L4 8z"), play: icon("M4 2l9 6-9 6z"),
  pause: icon("M4 3h3v10H4zM9 3h3v10H9z"), forward: icon("M5 3v10l7-5z"), end: icon("M11 3h2v10h-2zM3 3v10l7-5z"),
};
// All players of a page that play: first each paints its canvases, then each changes the page. Text on a canvas waits
// for the page's layout, which would otherwise be done anew for each player in each frame.
const film = (globalThis[Symbol.for("flashlab.film")] ??= { players: new Set(), running: 0 });
function roll(now) {
  const before = [...film.players];
  for (const one of before) one.paint(now);
  for (const one of before) one.page();
  film.running = film.players.size ? requestAnimationFrame(roll) : 0;
}

function render({ model, el }) {
  const s = model.get("strings"), fault = model.get("fault"), given = model.get("players"), l2 = model.get("l2");
  const still = matchMedia("(prefers-reduced-motion: reduce)"), darkness = matchMedia("(prefers-color-scheme: dark)");
  const root = document.createElement("div");
  Object.assign(root, { className: "fl-widget fl-player", role: "group", ariaLabel: s.name });
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab would scroll the notebook on space
  el.append(root);
  if (fault) {
    root.innerHTML = `<p class="fault" role="status">${esc(fault)}</p>`;
    return () => root.remove();
  }
  const traces = given.map((g) => open(g.trace, g.sizes)), ends = traces.map(totals);
  const nameOf = (i) => s.names[given[i].name.toLowerCase()] ?? given[i].name;
  const most = Math.max(...ends.map((e) => e.most));
  const order = [...new Set(traces.flatMap((t) => t.tensors.filter((x) => x.place !== "chip").map((x) => x.name)))].sort((a, b) => rankOf(a) - rankOf(b));
  const hasL2 = given.every((g) => g.hbm) && l2.size;
  let sync = model.get("sync"), p = model.get("position"), level = hasL2 ? model.get("level") : "sm", committed = p;
  let playing = false, table = false, timer = 0, before = 0, W = 0, ink = {}, told = 0, turn = 0, frames = 0, speed = 1, fresh = true;
  const last = () => (sync === "step" ? Math.max(...traces.map((t) => t.n)) : Math.max(...traces.map((t) => t.total[t.n])));

  root.innerHTML = `
    <output class="title"></output><p class="setting">${esc(model.get("setting"))}</p>
    <div class="board" data-players="${traces.length}">${traces.map((t, i) => `<section>
      <div class="head"><b>${esc(nameOf(i))}</b><span class="count"></span></div><div class="race" aria-hidden="true"><i class="full"></i><i class="sofar"></i></div>
      <div class="stage" role="img"><canvas class="base" aria-hidden="true"></canvas><canvas class="top" aria-hidden="true"></canvas></div>
      <p class="now"></p>
      <div class="by"><span>${esc(s.by_tensor)}</span><span class="key"><i class="r"></i>${esc(s.read)} <i class="w"></i>${esc(s.written)}</span></div><canvas class="bars" aria-hidden="true"></canvas></section>`).join("")}</div>
    <div class="table" hidden></div>
    <div class="controls">
      ${["home", "back", "play", "forward", "end"].map((b) => `<button type="button" data-do="${b}" ${/home|end/.test(b) ? `aria-label="${esc(s[b])}" title="${esc(s[b])}"` : ""}>${ICONS[b]}${/home|end/.test(b) ? "" : `<span>${esc(s[b])}</span>`}</button>`).join("")}
      <input type="range" min="0" step="any" aria-label="${esc(s.scrub)}">
      <label>${esc(s.speed)} <select name="speed">${[0.25, 0.5, 1, 2, 4].map((x) => `<option value="${x}" ${x === 1 ? "selected" : ""}>${x}×</option>`).join("")}</select></label></div>
    <div class="foot"><button type="button" data-do="table">${esc(s.as_table)}</button><span>${esc(s.keys_help)}</span><span class="picks">
      ${hasL2 ? `<label><input type="checkbox" name="l2"> ${esc(fill(s.l2, { size: l2.size, gpu: l2.gpu }))}</label>` : ""}
      ${traces.length > 1 ? `<label>${esc(s.sync)} <select name="sync"><option value="bytes">${esc(s.by_bytes)}</option><option value="step">${esc(s.by_step)}</option></select></label>` : ""}</span></div>`;
  const $ = (q) => root.querySelector(q), $$ = (q) => [...root.querySelectorAll(q)];
  const scrub = $("input[type=range]"), title = $(".title");
  const stages = $$("section").map((node, i) => stage(node, traces[i], nameOf(i), s, most));
  const parts = $$("section").map((node) => ({ count: node.querySelector(".count"), full: node.querySelector(".full"), sofar: node.querySelector(".sofar"), now: node.querySelector(".now"), picture: node.querySelector(".stage"), bars: node.querySelector(".bars") }));
  if ($("[name=sync]")) $("[name=sync]").value = sync;
  if ($("[name=l2]")) $("[name=l2]").checked = level === "hbm";

  // Bytes as this level counts them: an L2 lets a tensor's share through, spread evenly over its run.
  const behind = (i, name, moved) => {
    if (level === "sm") return moved;
    const t = traces[i].index.get(name), all = t === undefined ? 0 : ends[i].read[t] + ends[i].written[t];
    return all ? (moved * (given[i].hbm[name] ?? 0)) / all : 0;
  };
  const sum = (i, read, written) => traces[i].tensors.reduce((a, t) => a + behind(i, t.name, read[t.index] + written[t.index]), 0);
  let finals, scale;
  function measure() { // what depends on the level only
    finals = ends.map((e, i) => sum(i, e.read, e.written));
    scale = Math.max(1, ...traces.flatMap((t, i) => t.tensors.map((x) => behind(i, x.name, ends[i].read[x.index] + ends[i].written[x.index]))));
    const ghosts = (t) => t.tensors.filter((x) => x.place === "ghost").map((x) => x.name);
    title.textContent = finding(given.map((g, i) => ({ name: g.name, sum: finals[i], ghosts: ghosts(traces[i]) })), s, level === "hbm" && fill(s.l2_level, { size: l2.size }));
    parts.forEach((x, i) => (x.full.style.transform = `scaleX(${finals[i] / Math.max(...finals)})`));
    $$("section").forEach((node) => (node.dataset.level = level));
    scrub.max = last();
  }
  function drawBars(i) {
    const { context: c, looks } = parts[i], { state, trace } = stages[i], from = 58, to = W - 66;
    order.forEach((name, r) => {
      const t = trace.index.get(name), y = r * ROW, x = trace.tensors[t], moved = t === undefined ? 0 : ends[i].read[t] + ends[i].written[t];
      const now = moved ? state.read[t] + state.written[t] : 0, number = bytes(behind(i, name, now));
      if (looks[r] === now) return;
      if (looks[r] === undefined) write(c, pretty(name), 0, y + 13, moved ? ink.ink : ink.soft);
      c.clearRect(from - 2, y, W, ROW);
      looks[r] = now;
      if (!moved) return write(c, x?.place === "ghost" ? fill(s.never, { tensor: pretty(name) }) : "–", from, y + 13, ink.soft);
      const long = (b) => (behind(i, name, b) / scale) * (to - from), a = long(state.read[t]), b = long(state.written[t]);
      ((c.globalAlpha = 0.22), (c.fillStyle = ink.read), c.fillRect(from, y + 3, long(ends[i].read[t]), 12));
      ((c.fillStyle = ink.write), c.fillRect(from + long(ends[i].read[t]), y + 3, Math.max(1, long(ends[i].written[t])), 12));
      ((c.globalAlpha = 1), (c.fillStyle = ink.read), c.fillRect(from, y + 3, a, 12));
      ((c.fillStyle = ink.write), c.fillRect(from + a, y + 3, b, 12));
      write(c, number, W, y + 13, ink.ink, "right");
    });
  }
  const latest = (trace, n) => (sync === "bytes" ? lastMove(trace, n) : n - 1);
  function tell(i, all) {
    const { trace, state } = stages[i], said = state.at === trace.n ? s.done : sentence(trace, state, s, latest(trace, state.at));
    parts[i].now.textContent = said;
    if (all) parts[i].picture.setAttribute("aria-label", fill(s.picture, { name: nameOf(i), now: parts[i].text, sentence: said }));
  }
  let tellers = [];
  function paint() {
    const time = performance.now(), due = !playing || time - told > 150 / stages.length;
    frames++;
    if (due) ((told = time), (turn = (turn + 1) % stages.length));
    tellers = stages.map((_, i) => i).filter((i) => !playing || (due && i === turn)); // in turn: nobody reads faster
    const crowd = playing && [...film.players].reduce((a, x) => a + x.stages, 0) > 2; // then half of them in each frame
    stages.forEach((one, i) => {
      if (crowd && frames % 2 !== i % 2) return;
      const n = sync === "bytes" ? eventsAt(one.trace, p) : Math.min(one.trace.n, Math.floor(p));
      one.show(n, latest(one.trace, n), !playing || frames % 6 === (crowd ? 3 * i : 2 * i) % 6);
    });
    tellers.forEach(drawBars);
  }
  function page() {
    stages.forEach((one, i) => {
      if (playing && frames % 3 !== i % 3) return;
      const now = sum(i, one.state.read, one.state.written), text = fill(s.of, { now: bytes(now), all: bytes(finals[i]) });
      if (parts[i].text !== text) parts[i].count.textContent = parts[i].text = text;
      parts[i].sofar.style.transform = `scaleX(${now / Math.max(...finals)})`;
    });
    tellers.forEach((i) => tell(i, !playing));
    scrub.value = p;
    if (playing) return;
    scrub.setAttribute("aria-valuetext", parts.map((x, i) => `${nameOf(i)}: ${x.now.textContent}`).join("; "));
    $("[data-do=home]").disabled = $("[data-do=back]").disabled = p <= 0;
    $("[data-do=end]").disabled = $("[data-do=forward]").disabled = p >= last();
  }
  const draw = () => (paint(), page());
  function resize(force) {
    const w = Math.floor($(".stage").getBoundingClientRect().width);
    if (!w || (w === W && !force)) return;
    W = w;
    const probe = document.createElement("i");
    root.append(probe);
    for (const name of INKS) (probe.style.color = `var(--fl-${name})`), (ink[name] = getComputedStyle(probe).color);
    probe.remove();
    const both = stages.map((one) => one.heights(W)), tallest = [0, 1].map((i) => Math.max(...both.map((x) => x[i])));
    stages.forEach((one, i) => {
      one.resize(W, ...tallest, { ...ink });
      Object.assign(parts[i], { context: canvas2d(parts[i].bars, W, ROW * order.length), looks: [] });
    });
    draw();
  }
  function drawTable() {
    const cells = (list) => list.map((x) => `<td>${x}</td>`).join("");
    $(".table").innerHTML = traces.map((t, i) => {
      const head = ["t_tensor", "t_read", "t_written", "t_total", ...(hasL2 ? ["t_hbm"] : [])].map((k) => `<th scope="col">${esc(s[k])}</th>`).join("");
      const through = (name) => (hasL2 ? [bytes(given[i].hbm[name] ?? 0)] : []);
      const rows = order.filter((n) => t.index.has(n)).map((n) => {
        const x = t.index.get(n), [r, w] = [ends[i].read[x], ends[i].written[x]];
        return `<tr><th scope="row">${esc(pretty(n))}</th>${r + w ? cells([bytes(r), bytes(w), bytes(r + w), ...through(n)]) : cells([esc(fill(s.never, { tensor: pretty(n) })), "0 B", "0 B", ...through(n)])}</tr>`;
      });
      const all = [ends[i].read, ends[i].written].map((x) => x.reduce((a, b) => a + b, 0)), l2All = hasL2 ? [bytes(Object.values(given[i].hbm).reduce((a, b) => a + b, 0))] : [];
      return `<table><caption>${esc(fill(s.t_caption, { name: nameOf(i) }))}</caption><thead><tr>${head}</tr></thead><tbody>${rows.join("")}<tr class="sum"><th scope="row">${esc(s.t_total)}</th>${cells([bytes(all[0]), bytes(all[1]), bytes(all[0] + all[1]), ...l2All])}</tr></tbody></table>`;
    }).join("");
  }
  const commit = () => {
    if (p !== committed) (model.set("position", (committed = p)), model.save_changes());
  };
  const jump = (to) => ((p = Math.max(0, Math.min(last(), to))), draw());
  const reel = { stages: stages.length, paint: advance, page: () => (ended ? play(false) : page()) };
  let ended = false, whole = 1;
  function advance(now) {
    p = Math.min(last(), p + (last() * speed * Math.min(100, Math.max(0, now - before))) / whole);
    ((before = now), (ended = p >= last()));
    if (!ended) paint();
  }
  function leap() { // reduced motion: twenty pictures instead of a film
    p = Math.min(last(), p + last() / 20);
    if (p >= last()) return play(false);
    draw();
    timer = setTimeout(leap, 1000 / speed);
  }
  function play(on, tell = true) {
    playing = on;
    (film.players.delete(reel), clearTimeout(timer));
    $("[data-do=play]").innerHTML = `${ICONS[on ? "pause" : "play"]}<span>${esc(s[on ? "pause" : "play"])}</span>`;
    if (!on) return draw(), tell && ((p = Math.round(p)), commit());
    if (p >= last() || fresh) p = 0;
    (fresh = false), (before = performance.now());
    whole = 1000 * Math.max(6, Math.min(30, 0.5 * Math.max(...traces.map((t) => t.n)))); // ms at speed 1
    if (still.matches) return leap();
    film.players.add(reel);
    film.running ||= requestAnimationFrame(roll);
  }
  const halt = () => (playing && play(false, false), (fresh = false));
  const step = (way) => (halt(), jump(nextPosition(traces, sync, p, way)), commit());
  const act = {
    home: () => (halt(), jump(0), commit()), end: () => (halt(), jump(last()), commit()),
    back: () => step(-1), forward: () => step(1), play: () => play(!playing),
    table: () => {
      table = !table;
      ($(".board").hidden = table), ($(".table").hidden = !table);
      $("[data-do=table]").textContent = table ? s.as_picture : s.as_table;
      if (table) drawTable();
    },
  };
  root.addEventListener("click", (e) => act[e.target.closest("[data-do]")?.dataset.do]?.());
  root.addEventListener("keydown", (e) => {
    const tag = e.target.tagName, name = { ArrowRight: "forward", ArrowLeft: "back", Home: "home", End: "end", " ": "play" }[e.key];
    if (!name || e.ctrlKey || e.metaKey || e.altKey || tag === "SELECT") return;
    if (name === "play" && (tag === "BUTTON" || e.target.type === "checkbox")) return; // their own key
    (e.preventDefault(), e.stopPropagation(), act[name]());
  });
  scrub.addEventListener("input", () => (halt(), jump(+scrub.value)));
  root.addEventListener("change", (e) => {
    const name = e.target.name;
    if (e.target === scrub) return jump(Math.round(p)), commit();
    if (name === "speed") return void (speed = +e.target.value);
    if (name === "l2") model.set("level", (level = e.target.checked ? "hbm" : "sm"));
    else if (name === "sync") {
      const share = p / last();
      (halt(), (sync = e.target.value), (p = Math.round(share * last())), model.set("sync", sync), model.set("position", (committed = p)));
    } else return;
    model.save_changes();
    (measure(), resize(true));
  });
  const heard = () => {
    const n = model.get("position");
    if (n === committed) return;
    if (playing) play(false, false); // Python has just said where to be
    ((fresh = false), (committed = n), jump(n));
  };
  model.on("change:position", heard);
  const size = new ResizeObserver(() => resize()), repaint = () => resize(true), theme = new MutationObserver(repaint);
  (size.observe($(".board")), darkness.addEventListener("change", repaint));
  for (const node of [document.documentElement, document.body]) theme.observe(node, { attributeFilter: ["data-jp-theme-light", "class"] });
  (measure(), resize(true));
  return () => {
    (film.players.delete(reel), clearTimeout(timer), (playing = false), size.disconnect(), theme.disconnect(), darkness.removeEventListener("change", repaint));
    (model.off("change:position", heard), root.remove());
  };
}

export default { render };
