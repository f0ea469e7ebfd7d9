// Where TilePlayer draws things: tile_frames.js stands in front of this file. Lengths are CSS pixels.
// S = Q Kᵀ as on paper: Q to the left of S, K above it, so that the tile at the crossing is the product; P with V above
// and O to the right; in the backward pass a second band for dP = dO Vᵀ and dS.

const STRIP = 16, THIN_STRIP = 8, LINE = 14, GAP = 28, PAD = 10, SLOT_W = 58, SLOT_H = 42, NARROW = 340;
const BANDS = [
  { left: ["q"], squares: ["s", "p"], right: ["o_fp32", "l", "m", "o", "lse", "delta"] },
  { left: ["do"], squares: ["dp", "ds"], right: ["dq_fp32", "dq"] },
];
const ABOVE = { forward: { s: "k", p: "v" }, backward: { s: "k", p: "dv", dp: "v", ds: "dk" } };
const CHIP_ORDER = ["q", "k", "v", "o", "do", "lse", "delta", "s", "p", "dp", "ds", "acc", "o_fp32", "l", "m", "dq_fp32", "dq", "dk", "dv"];

const lines = (name) => pretty(name).split(" ");
const wide = (name) => Math.max(...lines(name).map((x) => 7.5 * x.length)) + 2;
const edges = (parts, from, length) => {
  const sum = parts.reduce((a, x) => a + x, 0), out = [from];
  for (const x of parts) out.push(out.at(-1) + (length * x) / sum);
  return out.map((x) => Math.round(x));
};
const put = (t, x, y, w, h, label) => ({ tensor: t, x, y, w, h, xs: edges(t.across, x, w), ys: edges(t.down, y, h), label });

// The places of all tensors in memory (`boxes`, by tensor index) and the height that they take.
export function memoryLayout(trace, W) {
  const boxes = new Map(), of = (name) => trace.tensors.find((t) => t.name === name && t.place !== "chip");
  const flow = trace.tensors.filter((t) => t.place === "memory"), above = ABOVE[trace.backward ? "backward" : "forward"];
  let y = PAD + 20;
  const strip = (t) => (t.thin ? THIN_STRIP : STRIP) * Math.min(3, Math.min(t.rows, t.cols));
  const side = (names) => names.map(of).filter((t) => t?.place === "memory" && t.kind === "row").map((t) => ({ t, w: strip(t), slot: Math.max(strip(t), wide(t.name)) + 6 }));
  const bands = BANDS.map((b) => ({ left: side(b.left), right: side(b.right), squares: b.squares.map(of).filter(Boolean) })).filter((b) => b.squares.length);
  const sum = (list) => list.reduce((a, x) => a + x.slot, 0), narrow = W < NARROW;
  const room = Math.min(...bands.map((b) => W - 2 * PAD - sum(b.left) - (narrow ? 0 : sum(b.right) + 12) - GAP * b.squares.length + 10)) / 2;
  const M = Math.max(40, Math.min(bands.length > 1 ? 150 : 230, room));
  for (const { left, right, squares } of bands) {
    const top = y + 2 * LINE + 2, most = (s) => Math.max(s.rows, s.cols), h = Math.max(14, ...squares.map((s) => (M * s.rows) / most(s)));
    let x = PAD;
    const column = (at, long) => ({ t, w, slot }) => {
      boxes.set(t.index, put(t, Math.round(x + (slot - 6 - w) / 2), at, w, long, { x: x + (slot - 6) / 2, y: at - 5, align: "center", lines: lines(t.name) }));
      x += slot;
    };
    left.forEach(column(top, h));
    for (const s of squares) {
      x += s === squares[0] && left.length ? GAP - 10 : GAP;
      const w = Math.max(14, (M * s.cols) / most(s)), over = of(above[s.name]);
      boxes.set(s.index, put(s, x, top, w, (M * s.rows) / most(s) < 14 ? 14 : (M * s.rows) / most(s), { x: x + w / 2, y: top + h + LINE, align: "center", lines: null, room: w + GAP - 8 }));
      if (over?.place === "memory" && over.kind === "col") boxes.set(over.index, put(over, x, top - 5 - strip(over), w, strip(over), { x: x - 5, y: top - 5 - strip(over) / 2 + 4, align: "right", lines: [pretty(over.name)] }));
      x += w;
    }
    y = top + h + LINE + 10;
    if (!narrow) ((x += 12), right.forEach(column(top, h)));
    else if (right.length) ((x = PAD), right.forEach(column(y + 2 * LINE, 0.7 * h)), (y += 2 * LINE + 0.7 * h + 10));
  }
  let x = PAD, tall = 0; // all others, one after the other
  for (const t of flow.filter((f) => !boxes.has(f.index))) {
    const cell = Math.max(3, Math.min(STRIP, (W - 2 * PAD) / t.cols, 130 / t.rows)), w = cell * t.cols, h = cell * t.rows, name = 7.5 * pretty(t.name).length;
    if (x > PAD && x + Math.max(w, name) > W - PAD) ((x = PAD), (y += tall + LINE + 10), (tall = 0));
    boxes.set(t.index, put(t, x, y + LINE, w, h, { x, y: y + LINE - 4, align: "left", lines: [pretty(t.name)] }));
    ((x += Math.max(w, name) + 16), (tall = Math.max(tall, h)));
  }
  return { boxes, height: Math.ceil(y + (tall ? tall + LINE + 6 : 0)) };
}

// The places on chip, below `top`: one for each tensor that is ever read or computed (a result that is only written
// leaves from the accumulator, where there is one).
export function chipLayout(trace, W, top) {
  const named = (name) => trace.tensors.find((t) => t.name === name);
  const comes = new Set([...trace.kinds.filter(([op]) => op !== "store").map(([, name]) => name), ...trace.tensors.filter((t) => t.place === "ghost").map((t) => t.name)]);
  const rank = (t) => (CHIP_ORDER.includes(t.name) ? CHIP_ORDER.indexOf(t.name) : 99);
  const shown = trace.tensors.filter((t) => comes.has(t.name) || !trace.computes).sort((a, b) => rank(a) - rank(b) || a.index - b.index);
  const many = Math.max(1, Math.floor((W - 2 * PAD + 4) / (SLOT_W + 4))), slots = new Map();
  shown.forEach((t, i) => slots.set(t.index, { x: PAD + (i % many) * (SLOT_W + 4), y: top + 26 + Math.floor(i / many) * (SLOT_H + 6), w: SLOT_W, h: SLOT_H }));
  const from = slots.get(named("acc")?.index) ?? { x: W / 2 - 20, y: top + 4, w: 40, h: 10 };
  trace.tensors.forEach((t) => slots.has(t.index) || slots.set(t.index, { ...from, borrowed: true }));
  return { slots, height: 26 + Math.ceil(Math.max(1, shown.length) / many) * (SLOT_H + 6) + 4 };
}
