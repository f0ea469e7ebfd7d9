// What TilePlayer shows, without the showing: a packed trace (packing.py) as grids of tiles, the state after n events,
// and the words for it. Put in front of tile_player.js (one module for the browser); tested alone with node.

const ROWS = ["q", "do", "o", "o_fp32", "dq", "dq_fp32", "lse", "m", "l", "delta"]; // cut along the queries
const COLS = ["k", "v", "dk", "dv"]; // cut along the keys
const SQUARE = ["s", "p", "dp", "ds"]; // queries x keys
const THIN = ["lse", "m", "l", "delta"];
const PRETTY = { q: "Q", k: "K", v: "V", s: "S", p: "P", o: "O", do: "dO", dq: "dQ", dk: "dK", dv: "dV", dp: "dP", ds: "dS", o_fp32: "O fp32", dq_fp32: "dQ fp32", l: "ℓ" };
export const pretty = (name) => PRETTY[name] ?? name;
export const fill = (text, values) => text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
const ORDER = ["q", "k", "v", "s", "p", "o", "o_fp32", "lse", "m", "l", "do", "delta", "dp", "ds", "dq", "dq_fp32", "dk", "dv"];
export const rankOf = (name) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
const kindOf = (name) => (ROWS.includes(name) ? "row" : COLS.includes(name) ? "col" : SQUARE.includes(name) ? "square" : "other");

// Bytes for people, three digits, units of 1000.
export function bytes(x) {
  let unit = 0;
  while (x >= 999.5 && unit < 4) (x /= 1000), unit++;
  return `${unit ? +x.toPrecision(3) : Math.round(x)} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}

function column([width, text]) {
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), view = new DataView(raw.buffer);
  if (width === 1) return raw;
  return width === 2 ? Uint16Array.from({ length: raw.length / 2 }, (_, i) => view.getUint16(2 * i, true)) : Uint32Array.from({ length: raw.length / 4 }, (_, i) => view.getUint32(4 * i, true));
}

// The grid of one tensor: how a tile's tuple becomes a cell. Elements or block numbers: only their order counts.
function grid(name, tuples) {
  const long = Math.max(0, ...tuples.map((t) => t.length)), kind = kindOf(name);
  const full = tuples.map((t) => [...Array(long - t.length).fill(0), ...t]);
  const varies = Array.from({ length: long }, (_, a) => a).filter((a) => new Set(full.map((t) => t[a])).size > 1);
  let down = [], across = []; // axes
  if (kind === "square" || (kind === "other" && long > 1 && varies.length > 1 && varies.at(-1) === long - 1)) {
    (down = varies.filter((a) => a !== long - 1)), (across = varies.filter((a) => a === long - 1));
    if (long === 1) (down = varies), (across = []);
  } else (down = varies.slice(-1)), (across = varies.slice(0, -1));
  if (kind === "col" || (kind === "other" && !across.length)) [down, across] = [across, down];
  const key = (t, axes) => axes.map((a) => t[a]), order = (x, y) => x.reduce((d, v, i) => d || v - y[i], 0);
  const places = (axes) => {
    const all = [...new Map(full.map((t) => [key(t, axes).join(), key(t, axes)])).values()].sort(order);
    return new Map(all.map((k, i) => [k.join(), i]));
  };
  const r = places(down), c = places(across), rows = Math.max(1, r.size), cols = Math.max(1, c.size);
  const cell = (t) => {
    if (t.length > long) t = kind === "col" ? t.slice(-long) : t.slice(0, long); // an update at (i, j)
    const x = [...Array(Math.max(0, long - t.length)).fill(0), ...t];
    return (r.get(key(x, down).join()) ?? 0) * cols + (c.get(key(x, across).join()) ?? 0);
  };
  return { name, kind, thin: THIN.includes(name), rows, cols, cell };
}

// A packed trace, decoded, with everything that does not change while it plays. `sizes`, where known: {rows: [blocks of
// queries, length of the last one against a whole one], cols: the same for keys}.
export function open(packed, sizes) {
  const n = packed.events, kind = column(packed.columns.kind), program = column(packed.columns.program), tile = column(packed.columns.tile);
  const { kinds, programs, tiles } = packed, seen = new Map(), touched = new Map();
  for (let e = 0; e < n; e++) {
    const [op, name] = kinds[kind[e]], moves = op === "load" || op === "store";
    if (!touched.has(name)) touched.set(name, { moved: new Set(), noted: new Set() });
    touched.get(name)[moves ? "moved" : "noted"].add(tile[e]);
  }
  const names = [...touched.keys()], moved = (name) => touched.get(name)?.moved.size > 0;
  const tensors = names.map((name) => {
    const { moved: inMemory, noted } = touched.get(name);
    let tuples = [...(inMemory.size ? inMemory : noted)].map((t) => tiles[t]);
    const short = Math.min(...tuples.map((t) => t.length)); // an accumulator, noted at (i, j) and (i): its tile is i
    if (!inMemory.size && kindOf(name) !== "square") tuples = tuples.map((t) => t.slice(0, short));
    return { ...grid(name, tuples), place: inMemory.size ? "memory" : kindOf(name) === "square" ? "ghost" : "chip" };
  });
  // What attention has, and this trace never moves: S and P, in the backward pass dP and dS too.
  const of = (name) => tensors.find((t) => t.name === name);
  const shape = of("s") ?? of("p"), wanted = shape || (moved("q") && moved("k")) ? (moved("do") ? SQUARE : ["s", "p"]) : [];
  for (const name of wanted) {
    if (of(name)) continue;
    const rows = shape?.rows ?? of("q").rows, cols = shape?.cols ?? of("k").cols;
    tensors.push({ name, kind: "square", rows, cols, place: "ghost", cell: (t) => (shape ? shape.cell(t) : 0), implied: true });
  }
  tensors.forEach((t, i) => ((t.index = i), seen.set(t.name, i), (t.cells = t.rows * t.cols)));
  const cellTables = tensors.map((t) => (t.implied ? null : new Int32Array(tiles.length).fill(-1)));
  const tensor = new Uint16Array(n), cell = new Int32Array(n), total = new Float64Array(n + 1), run = new Uint32Array(n);
  let computes = false;
  for (let e = 0, r = -1; e < n; e++) {
    const [op, name, size] = kinds[kind[e]], t = (tensor[e] = seen.get(name)), cached = cellTables[t];
    if (cached[tile[e]] < 0) cached[tile[e]] = tensors[t].cell(tiles[tile[e]]);
    cell[e] = cached[tile[e]];
    total[e + 1] = total[e] + (op === "load" || op === "store" ? size : 0);
    if (e === 0 || program[e] !== program[e - 1]) r++;
    run[e] = r;
    computes ||= op !== "load" && op !== "store";
  }
  // Ragged last blocks: from the sizes, else from what a block moves (or computes) against the largest.
  for (const t of tensors) (t.down = new Float64Array(t.rows)), (t.across = new Float64Array(t.cols));
  for (let e = 0; e < n; e++) {
    const [op, , size, flops] = kinds[kind[e]], t = tensors[tensor[e]], weight = size || (op === "scores" ? flops : 0);
    const i = Math.floor(cell[e] / t.cols), j = cell[e] % t.cols;
    (t.down[i] = Math.max(t.down[i], weight)), (t.across[j] = Math.max(t.across[j], weight));
  }
  for (const t of tensors) {
    const source = t.implied ? { down: (shape ?? of("q")).down, across: (shape ?? of("k")).across } : t;
    for (const side of ["down", "across"]) {
      const top = Math.max(...source[side]), count = side === "down" ? t.rows : t.cols;
      const known = sizes?.[side === "down" ? "rows" : "cols"], applies = t.kind === "square" || t.kind === (side === "down" ? "row" : "col");
      if (known && applies && count === known[0]) {
        t[side] = [...Array(count - 1).fill(1), Math.max(0.15, known[1])];
        continue;
      }
      t[side] = Array.from({ length: count }, (_, i) => (top > 0 && i === count - 1 && source[side][i] > 0 ? Math.max(0.15, source[side][i] / top) : 1));
    }
  }
  const until = lifetimes(n, run, tensor, (e) => kinds[kind[e]][0]);
  return { n, kinds, kind, programs, program, tiles, tile, tensors, tensor, cell, total, run, until, index: seen, computes, backward: moved("do") };
}

// How long a loaded tile stays on chip: to the last computation before its place is taken or its program ends (without
// any computation: until then).
function lifetimes(n, run, tensor, op) {
  const until = new Uint32Array(n), work = new Int32Array(n), next = new Map();
  for (let e = 0, last = -1; e < n; e++) {
    if (e === 0 || run[e] !== run[e - 1]) last = -1;
    work[e] = last = op(e) === "load" || op(e) === "store" ? last : e;
  }
  for (let e = n - 1, end = n; e >= 0; e--) {
    if (e === n - 1 || run[e] !== run[e + 1]) ((end = e + 1), next.clear());
    if (op(e) !== "load") continue;
    const stop = (next.get(tensor[e]) ?? end) - 1;
    until[e] = work[stop] > e ? work[stop] : stop;
    next.set(tensor[e], e);
  }
  return until;
}

const EMPTY = { cell: -1, since: -1, how: "", until: -1 }; // a place on chip with nothing in it

export function begin(trace) {
  const zero = () => new Float64Array(trace.tensors.length);
  return {
    at: 0, read: zero(), written: zero(), slots: trace.tensors.map(() => EMPTY),
    reads: trace.tensors.map((t) => new Uint32Array(t.cells)), writes: trace.tensors.map((t) => new Uint32Array(t.cells)),
    made: trace.tensors.map((t) => new Uint32Array(t.cells)),
  };
}

// Go on to the state after `to` events (from the start again, if that lies behind). `touch(tensor, cell)` hears of each
// tile in memory whose look changes; returns whether it had to start again.
export function seek(trace, state, to, touch = () => {}) {
  const again = to < state.at;
  if (again) Object.assign(state, begin(trace));
  const tensors = trace.tensors, slots = state.slots;
  const square = (e, c) => {
    for (const t of tensors) {
      if (t.kind !== "square" || (t.place !== "ghost" && t.index !== trace.tensor[e])) continue;
      state.made[t.index][c]++;
      slots[t.index] = { cell: c, since: e, how: trace.backward ? "again" : "new", until: trace.n };
      if (t.place === "ghost") touch(t.index, c);
    }
  };
  for (let e = state.at; e < to; e++) {
    const [op, , size] = trace.kinds[trace.kind[e]], t = trace.tensor[e], c = trace.cell[e];
    const first = e === 0 || trace.run[e] !== trace.run[e - 1];
    slots.forEach((s, i) => {
      const gone = first || e > s.until || (op === "load" && s.how === "store") || (op === "load" && tensors[i].kind === "square" && s.how !== "load");
      if (gone && s.cell >= 0) slots[i] = EMPTY;
    });
    if (op === "load") {
      slots[t] = { cell: c, since: e, how: "load", until: trace.until[e] };
      state.read[t] += size;
      state.reads[t][c]++;
      if (!trace.computes) implied(trace, slots, e, square);
    } else if (op === "store") {
      slots[t] = { cell: c, since: e, how: "store", until: trace.n };
      state.written[t] += size;
      state.writes[t][c]++;
    } else if (op === "scores") square(e, c);
    else slots[t] = { cell: c, since: slots[t].cell === c ? slots[t].since : e, how: op, until: trace.n };
    if (tensors[t].place === "memory" && (op === "load" || op === "store")) touch(t, c);
  }
  state.at = to;
  return again;
}

// A kernel's own trace has no computations: when V (or K) meets a Q on chip, their tile of S has been made.
function implied(trace, slots, e, square) {
  const q = trace.index.get("q"), k = trace.index.get("k"), last = trace.index.get("v") ?? k;
  if (q === undefined || k === undefined || trace.tensor[e] !== last || slots[q].cell < 0 || slots[k].cell < 0) return;
  const s = trace.tensors.find((t) => t.kind === "square" && t.place === "ghost");
  if (s) {
    const i = Math.floor(slots[q].cell / trace.tensors[q].cols), j = slots[k].cell % trace.tensors[k].cols;
    square(e, i * s.cols + j);
  }
}

// The state in which `sum` bytes have moved: the number of events that are through by then.
export function eventsAt(trace, sum) {
  let low = 0, high = trace.n;
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (trace.total[mid] <= sum) low = mid;
    else high = mid - 1;
  }
  return low;
}

// One step on (or back) from position p: by step a whole number, by bytes the next sum at which any trace has moved.
export function nextPosition(traces, sync, p, way) {
  if (sync === "step") return way > 0 ? Math.floor(p) + 1 : Math.ceil(p) - 1;
  const sums = traces.map((t) => {
    const n = eventsAt(t, p);
    if (way > 0) return n < t.n ? t.total[n + 1] : Infinity;
    let e = t.total[n] < p ? n : n - 1;
    while (e > 0 && t.total[e] >= p) e--;
    return t.total[Math.max(0, e)];
  });
  return way > 0 ? Math.min(...sums, Math.max(...traces.map((t) => t.total[t.n]))) : Math.max(0, ...sums);
}

// The whole run: bytes by tensor, and how often its busiest tile is read or written.
export function totals(trace) {
  const end = begin(trace);
  seek(trace, end, trace.n);
  let most = 1;
  for (const counts of [...end.reads, ...end.writes]) for (const x of counts) most = Math.max(most, x);
  return { read: [...end.read], written: [...end.written], all: trace.total[trace.n], most };
}

const list = (names, s) => names.join(s.and);

// The finding in one sentence: who moves least, against standard attention where it plays, else against the most.
export function finding(players, s, level) {
  const shown = players.map((p) => ({ name: s.names[p.name.toLowerCase()] ?? p.name, sum: p.sum, standard: p.name.toLowerCase() === "standard", ghosts: p.ghosts }));
  const by = [...shown].sort((a, b) => a.sum - b.sum), least = by[0];
  let out;
  if (shown.length === 1) {
    const it = { name: least.name, bytes: bytes(least.sum), ghosts: list(least.ghosts.map(pretty), s) };
    out = fill(least.ghosts.length && !level ? s.finding_ghosts : s.finding_one, it);
  } else {
    const other = (!least.standard && by.find((p) => p.standard)) || by.at(-1);
    const rest = by.filter((p) => p !== least && p !== other);
    const it = { best: least.name, few: bytes(least.sum), other: other.name, many: bytes(other.sum) };
    out = fill(bytes(least.sum) === bytes(other.sum) ? s.finding_same : s.finding, it);
    if (rest.length) out += fill(s.finding_rest, { rest: list(rest.map((p) => fill(s.finding_part, { name: p.name, bytes: bytes(p.sum) })), s) });
  }
  return level ? fill(s.finding_level, { level, finding: out }) : out;
}

// A tile's number for people, from 1: its place in the grid.
export function tileName(t, c) {
  const i = Math.floor(c / t.cols) + 1, j = (c % t.cols) + 1;
  return t.rows > 1 && t.cols > 1 ? `${i},${j}` : t.cells > 1 ? String(Math.max(i, j)) : "";
}
const named = (t, c) => `${pretty(t.name)} ${tileName(t, c)}`.trim();

// The last event before the n-th that moved bytes; -1: none.
export function lastMove(trace, n) {
  let e = n - 1;
  while (e >= 0 && trace.total[e + 1] === trace.total[e]) e--;
  return e;
}

// What event e (one of the last of `state`) did, in one sentence, and what stays on chip meanwhile.
export function sentence(trace, state, s, e = state.at - 1) {
  if (state.at === 0 || e < 0) return s.nothing_yet;
  const [op, , size] = trace.kinds[trace.kind[e]], t = trace.tensors[trace.tensor[e]];
  const again = op === "scores" && state.slots[t.index].how === "again";
  const said = fill(s[again ? "again" : op] ?? s.other, { tile: named(t, trace.cell[e]), bytes: bytes(size), op });
  const kept = trace.tensors.filter((x) => x !== t && isKept(state, x, e)).map((x) => named(x, state.slots[x.index].cell));
  return said + (kept.length ? fill(s.kept, { tiles: kept.join(s.comma) }) : "");
}
export const isKept = (state, t, e) => {
  const slot = state.slots[t.index];
  return slot.cell >= 0 && slot.since < e && t.kind !== "square" && slot.how !== "store";
};
