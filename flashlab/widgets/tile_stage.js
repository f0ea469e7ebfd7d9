// One player's picture on its canvases; tile_frames.js and tile_layout.js stand in front of this file.

const INKS = ["ink", "soft", "page", "card", "line", "read", "read-ink", "write", "write-ink", "made", "made-ink"];
const RECENT = 3, ROW = 18, FONT = '12px system-ui, -apple-system, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", sans-serif';
const PAINT = { load: "read", store: "write" };

function canvas2d(node, w, h) {
  const dpr = Math.min(2, devicePixelRatio || 1), c = node.getContext("2d");
  Object.assign(node, { width: Math.round(w * dpr), height: Math.round(h * dpr) });
  node.style.height = `${h}px`;
  c.setTransform(dpr, 0, 0, dpr, 0, 0);
  c.font = FONT;
  return c;
}

function write(c, words, x, y, colour, align = "left", most = 0) {
  ((c.globalAlpha = 1), (c.fillStyle = colour), (c.textAlign = align));
  c.fillText(words, x, y, ...(most && words.length > 8 ? [most] : [])); // a limit of width costs time
}

// One player: its trace, its state, its two canvases.
function stage(section, trace, name, s, most) {
  const $ = (q) => section.querySelector(q), state = begin(trace);
  let base, top, W = 0, H = 0, places, chip, ink;
  const cellBox = (t, c) => {
    const b = places.get(t), i = Math.floor(c / b.tensor.cols), j = c % b.tensor.cols;
    return [b.xs[j], b.ys[i], b.xs[j + 1] - b.xs[j], b.ys[i + 1] - b.ys[i]];
  };
  const strength = (count) => 0.22 + (0.78 * Math.log2(1 + count)) / Math.log2(1 + most);
  function paintCell(t, c) {
    if (!places.has(t)) return;
    const b = places.get(t), gap = Math.min(b.w / b.tensor.cols, b.h / b.tensor.rows) > 3.5 ? 1 : 0, [x, y, w, h] = cellBox(t, c), ghost = trace.tensors[t].place === "ghost";
    const reads = state.reads[t][c], writes = state.writes[t][c], made = ghost && state.made[t][c];
    base.globalAlpha = 1;
    base.fillStyle = ghost ? ink.card : ink.page;
    (base.fillRect(x, y, w, h), (base.globalAlpha = 1));
    if (made) ((base.globalAlpha = 0.3), (base.fillStyle = ink.made), base.fillRect(x, y, w - gap, h - gap));
    const half = reads && writes ? Math.round(w / 2) : 0;
    if (writes) ((base.globalAlpha = strength(writes)), (base.fillStyle = ink.write), base.fillRect(x, y, half || w - gap, h - gap));
    if (reads) ((base.globalAlpha = strength(reads)), (base.fillStyle = ink.read), base.fillRect(x + half, y, w - gap - half, h - gap));
  }
  function paintAll() {
    base.clearRect(0, 0, W, H);
    slotLooks.clear();
    const card = (y, h, label) => {
      base.globalAlpha = 1;
      ((base.fillStyle = ink.card), base.fillRect(0, y, W, h));
      ((base.strokeStyle = ink.line), base.strokeRect(0.5, y + 0.5, W - 1, h - 1));
      ((base.font = `600 ${FONT}`), write(base, label, PAD, y + 18, ink.ink), (base.font = FONT));
    };
    card(0, chip.top - 8, s[section.dataset.level === "hbm" ? "memory_l2" : "memory"]);
    card(chip.top, H - chip.top, s.chip);
    for (const [t, b] of places) {
      const ghost = b.tensor.place === "ghost", short = pretty(b.tensor.name), never = fill(s.never, { tensor: short });
      const label = b.label.lines ?? [ghost && base.measureText(never).width < b.label.room ? never : short];
      for (let c = 0; c < b.tensor.cells; c++) paintCell(t, c);
      base.globalAlpha = 1;
      base.strokeStyle = ink.soft;
      base.setLineDash(ghost ? [4, 3] : []);
      base.strokeRect(b.x - 1.5, b.y - 1.5, b.xs.at(-1) - b.x + 2, b.ys.at(-1) - b.y + 2);
      base.setLineDash([]);
      label.forEach((text, i) => write(base, text, b.label.x, b.label.y - (label.length - 1 - i) * (LINE - 2), ghost ? ink.soft : ink.ink, b.label.align));
    }
  }
  const middle = ([x, y, w, h]) => [x + w / 2, y + h / 2];
  function arrow([x0, y0], [x1, y1], colour) {
    const a = Math.atan2(y1 - y0, x1 - x0), tip = (d) => [x1 - 9 * Math.cos(a + d), y1 - 9 * Math.sin(a + d)];
    ((top.strokeStyle = top.fillStyle = colour), (top.lineWidth = 2));
    (top.beginPath(), top.moveTo(x0, y0), top.lineTo(x1, y1), top.stroke());
    (top.beginPath(), top.moveTo(x1, y1), top.lineTo(...tip(0.45)), top.lineTo(...tip(-0.45)), top.fill());
  }
  const slotLooks = new Map();
  function paintSlot(t, e) { // only where it has changed: text is what costs
    const b = chip.slots.get(t.index), slot = state.slots[t.index], full = slot.cell >= 0, kept = full && isKept(state, t, e);
    const how = kept ? "kept" : slot.how, key = full ? `${slot.cell} ${how}` : "";
    if (slotLooks.get(t.index) === key) return;
    slotLooks.set(t.index, key);
    const colour = full ? ({ load: "read", store: "write", kept: "page" }[how] ?? "made") : "card", edge = full ? (colour === "page" ? ink.ink : ink[`${colour}-ink`]) : ink.line;
    base.globalAlpha = 1;
    ((base.fillStyle = full ? ink.page : ink.card), base.fillRect(b.x, b.y, b.w, b.h));
    if (full && colour !== "page") ((base.globalAlpha = 0.35), (base.fillStyle = ink[colour]), base.fillRect(b.x, b.y, b.w, b.h), (base.globalAlpha = 1));
    base.fillStyle = edge;
    for (const r of [[b.x, b.y, b.w, 1], [b.x, b.y + b.h - 1, b.w, 1], [b.x, b.y, 1, b.h], [b.x + b.w - 1, b.y, 1, b.h]]) base.fillRect(...r);
    const name = lines(t.name)[0], label = full ? `${name} ${tileName(t, slot.cell)}` : name;
    write(base, label, b.x + b.w / 2, b.y + (full ? 17 : 25), full ? ink.ink : ink.soft, "center", b.w - 4);
    if (full) write(base, s[`how_${how}`] ?? "", b.x + b.w / 2, b.y + 33, ink.ink, "center", b.w - 4);
  }
  function draw(latest = state.at - 1, readable = true) { // latest: the event of which the words speak
    top.clearRect(0, 0, W, H);
    const now = state.at - 1;
    for (let e = Math.max(0, now - RECENT + 1); e <= now; e++) { // what has just moved, fading
      const t = trace.tensor[e], op = trace.kinds[trace.kind[e]][0];
      if (!PAINT[op] || !places.has(t)) continue;
      const [x, y, w, h] = cellBox(t, trace.cell[e]);
      ((top.globalAlpha = Math.max(0.15, 1 - (now - e) / RECENT)), (top.strokeStyle = ink[`${PAINT[op]}-ink`]), (top.lineWidth = 2));
      top.strokeRect(x - 1, y - 1, w + 1, h + 1);
    }
    for (const t of trace.tensors) { // the tile of S and P that is on chip, where it would lie
      const slot = state.slots[t.index], b = places.get(t.index);
      if (t.kind !== "square" || slot.cell < 0 || !b) continue;
      const [x, y, w, h] = cellBox(t.index, slot.cell);
      if (t.place === "ghost") ((top.globalAlpha = 0.9), (top.fillStyle = ink.made), top.fillRect(x, y, w, h));
      ((top.globalAlpha = 1), (top.strokeStyle = ink["made-ink"]), (top.lineWidth = 1.5), top.strokeRect(x - 0.5, y - 0.5, w + 1, h + 1));
    }
    if (readable) for (const t of trace.tensors) if (!chip.slots.get(t.index).borrowed) paintSlot(t, latest);
    const e = lastMove(trace, state.at);
    if (e >= 0 && now - e < 4 && places.has(trace.tensor[e])) {
      const op = trace.kinds[trace.kind[e]][0], slot = chip.slots.get(trace.tensor[e]);
      const far = middle(cellBox(trace.tensor[e], trace.cell[e])), near = [slot.x + slot.w / 2, slot.y];
      top.globalAlpha = 1;
      arrow(...(op === "load" ? [far, near] : [near, far]), ink[`${PAINT[op]}-ink`]);
    }
  }
  return {
    trace, state, name, section,
    heights: (w) => [memoryLayout(trace, w).height, chipLayout(trace, w, 0).height],
    resize(w, memoryHeight, chipHeight, colours) {
      ((W = w), (ink = colours), (places = memoryLayout(trace, w).boxes));
      ((chip = { top: memoryHeight + 8, ...chipLayout(trace, w, memoryHeight + 8) }), (H = chip.top + chipHeight));
      $(".stage").style.height = `${H}px`;
      ((base = canvas2d($(".base"), W, H)), (top = canvas2d($(".top"), W, H)));
      (paintAll(), draw());
    },
    show(n, latest, readable) { // the state after n events
      if (seek(trace, state, n, paintCell)) paintAll();
      draw(latest, readable);
    },
  };
}
