// What BlockSchedule shows, without the showing: flashlab/schedule.py (with splits.py and Tiles of flows.py) once more,
// held to them by a test. Put in front of block_schedule.js. Programs are columns, because there may be 100,000.
// A problem p: {B, Hq, Hkv, Nq, Nk, D, causal, block_q, block_k}; a gpu: {name, sms, peak: FLOP/s or null}.

const MIN_KEYS = 512, KEYS_OF_A_SPLIT = 128, FULL = 0.95;
const ceil = (a, b) => Math.ceil(a / b);

export function chooseSplits(programs, keys, sms) {
  if (programs === 0 || programs >= sms || keys <= MIN_KEYS) return 1;
  const most = Math.max(1, Math.min(Math.floor((2 * sms) / programs), Math.floor(keys / KEYS_OF_A_SPLIT)));
  const fullness = (s) => (s * programs) / (ceil(s * programs, sms) * sms);
  let best = 0, s = 1;
  for (let i = 1; i <= most; i++) best = Math.max(best, fullness(i));
  while (fullness(s) < FULL * best) s++;
  return s;
}

export const rowsOfTile = (rows, blockQ) => Math.min(blockQ, Math.max(16, 2 ** Math.ceil(Math.log2(Math.max(rows, 1)))));

// Tile steps of each query block of one head.
export function steps(p) {
  const offset = { false: null, true: 0, "top-left": 0, "bottom-right": p.Nk - p.Nq }[p.causal], out = [];
  for (let i = 0; i < p.Nq; i += p.block_q) {
    const lastRow = Math.min(i + p.block_q, p.Nq) - 1;
    out.push(ceil(offset === null ? p.Nk : Math.min(Math.max(lastRow + offset + 1, 0), p.Nk), p.block_k));
  }
  return out;
}

// The programs in the order of their numbers, as columns; null where there are more than `most`.
export function workItems(p, algorithm, sms, order, splits, most = 100000) {
  const heads = p.B * p.Hq, head = [], block = [], work = [], split = [];
  const add = (h, b, w, s) => (head.push(h), block.push(b), work.push(w), split.push(s));
  if (algorithm === "decode") {
    const rows = (p.Hq / p.Hkv) * p.Nq, blocks = ceil(rows, rowsOfTile(rows, p.block_q));
    const parts = splits || chooseSplits(p.B * p.Hkv * blocks, p.Nk, sms), keys = ceil(ceil(p.Nk, parts), p.block_k) * p.block_k;
    if (p.B * p.Hkv * parts * blocks > most) return null;
    for (let h = 0; h < p.B * p.Hkv; h++)
      for (let s = 0; s < parts; s++) {
        const start = Math.min(s * keys, p.Nk), end = Math.min(start + keys, p.Nk);
        for (let b = 0; b < blocks; b++) add(h, b, ceil(end - start, p.block_k), s);
      }
    return { head, block, work, split };
  }
  const each = steps(p);
  if (algorithm === "fa1") {
    if (heads > most) return null;
    const all = each.reduce((a, b) => a + b, 0);
    for (let h = 0; h < heads; h++) add(h, 0, all, 0);
    return { head, block, work, split };
  }
  if (heads * each.length > most) return null;
  const numbers = each.map((_, i) => i);
  if (order === "reversed") numbers.reverse();
  if (order === "longest-first") { // of all heads: a stable sort, the blocks of one length by head
    numbers.sort((a, b) => each[b] - each[a]);
    for (let i = 0, j; i < numbers.length; i = j) {
      for (j = i; j < numbers.length && each[numbers[j]] === each[numbers[i]]; ) j++;
      for (let h = 0; h < heads; h++) for (let k = i; k < j; k++) add(h, numbers[k], each[numbers[k]], 0);
    }
  } else for (let h = 0; h < heads; h++) for (const b of numbers) add(h, b, each[b], 0);
  return { head, block, work, split };
}

// A heap of SMs by (time, number).
function heapOf(time) {
  const heap = [], less = (a, b) => time[a] < time[b] || (time[a] === time[b] && a < b);
  return {
    get size() { return heap.length; },
    push(x) {
      let i = heap.push(x) - 1;
      for (let up; i > 0 && less(x, heap[(up = (i - 1) >> 1)]); i = up) heap[i] = heap[up];
      heap[i] = x;
    },
    pop() {
      const top = heap[0], x = heap.pop(), n = heap.length;
      if (n) {
        let i = 0;
        for (let c; (c = 2 * i + 1) < n; i = c) {
          if (c + 1 < n && less(heap[c + 1], heap[c])) c++;
          if (!less(heap[c], x)) break;
          heap[i] = heap[c];
        }
        heap[i] = x;
      }
      return top;
    },
  };
}

const byStart = (a, b) => a.start - b.start || a.sm - b.sm || a.slot - b.slot;

// The same where an SM has one program at a time: no shares, so nothing to keep but what each SM works on.
function placeSingly(work, sms, persistent) {
  const n = work.length, grid = persistent ? Math.min(sms, n) : n, first = Math.min(sms, grid), done = [];
  const time = new Float64Array(sms), start = new Float64Array(sms), item = new Int32Array(sms), heap = heapOf(time);
  for (let m = 0; m < first; m++) (item[m] = m), (time[m] = work[m]), heap.push(m);
  for (let next = first; heap.size; ) {
    const m = heap.pop(), t = time[m], i = item[m];
    done.push({ sm: m, slot: 0, start: start[m], end: t, item: i });
    const after = persistent ? i + grid : next++;
    if (after >= n) continue;
    (item[m] = after), (start[m] = t), (time[m] = t + work[after]);
    heap.push(m);
  }
  return done.sort(byStart);
}

// Place the items on SMs whose programs share their speed evenly. Returns columns {sm, slot, start, end, item}, by start.
export function place(work, sms, perSm = 1, persistent = false) {
  if (perSm === 1) return placeSingly(work, sms, persistent);
  const n = work.length, grid = persistent ? Math.min(sms * perSm, n) : n; // persistent: program g takes items g, g + grid, ...
  const running = Array.from({ length: sms }, () => []), now = new Float64Array(sms), time = new Float64Array(sms);
  const done = [], heap = heapOf(time);
  let next = 0;
  const advance = (m, t) => {
    const mine = running[m];
    if (mine.length && t > now[m]) {
      const part = (t - now[m]) * (1 / mine.length);
      for (const e of mine) e.left -= part;
    }
    now[m] = t;
  };
  const start = (m, t, slot, item, origin) => (advance(m, t), running[m].push({ slot, left: work[item], item, start: t, origin }));
  const queue = (m) => {
    const mine = running[m];
    let least = mine[0].left;
    for (const e of mine) least = Math.min(least, e.left);
    time[m] = now[m] + Math.max(least, 0) / (1 / mine.length);
    heap.push(m);
  };
  for (let slot = 0; slot < perSm; slot++) for (let m = 0; m < sms && next < grid; m++) start(m, 0, slot, next, next++);
  for (let m = 0; m < sms; m++) if (running[m].length) queue(m);
  while (heap.size) {
    const m = heap.pop(), t = time[m];
    advance(m, t);
    let least = Infinity;
    for (const e of running[m]) least = Math.min(least, e.left);
    const ended = running[m].filter((e) => e.left <= least + 1e-9);
    running[m] = running[m].filter((e) => e.left > least + 1e-9);
    for (const e of ended) {
      done.push({ sm: m, slot: e.slot, start: e.start, end: t, item: e.item });
      const after = persistent ? e.item + grid : next;
      if (after < n) start(m, t, e.slot, after, e.origin), persistent || next++;
    }
    if (running[m].length) queue(m);
  }
  return done.sort(byStart);
}

// The Timeline of schedule.py. null where there are too many programs.
export function simulate(p, algorithm, gpu, { order = "natural", splits = null, persistent = false, perSm = 1 } = {}) {
  const items = workItems(p, algorithm, gpu.sms, order, splits);
  if (!items) return null;
  const programs = place(items.work, gpu.sms, perSm, persistent), spans = Array(gpu.sms).fill(null);
  let makespan = 0, busy = 0, used = 0;
  for (const q of programs) {
    const mine = (spans[q.sm] ??= (used++, { from: q.start, to: q.start, busy: 0, count: 0 }));
    if (q.start > mine.to) (mine.busy += mine.to - mine.from), (mine.from = q.start);
    if (q.end > mine.to) mine.to = q.end;
    if (q.end > makespan) makespan = q.end;
    mine.count++;
  }
  const perSmBusy = spans.map((s) => (s ? { busy: s.busy + s.to - s.from, count: s.count, last: s.to } : { busy: 0, count: 0, last: 0 }));
  for (const s of perSmBusy) busy += s.busy;
  const rows = (p.Hq / p.Hkv) * p.Nq, blockQ = algorithm === "decode" ? rowsOfTile(rows, p.block_q) : p.block_q;
  const step = gpu.peak ? (4 * blockQ * p.block_k * p.D) / (gpu.peak / gpu.sms) : null; // seconds of one tile step
  const grid = persistent ? Math.min(gpu.sms * perSm, programs.length) : programs.length;
  return {
    items, programs, makespan, busy, step, grid, perSm, sms: perSmBusy, used, algorithm,
    splits: items.split.length ? items.split.reduce((a, b) => Math.max(a, b), 0) + 1 : 1,
    utilisation: makespan ? busy / (makespan * gpu.sms) : 0, idle: makespan * gpu.sms - busy,
    waves: programs.length / (gpu.sms * perSm), tail: programs.length ? makespan - Math.min(...perSmBusy.map((s) => s.last)) : 0,
  };
}

export const put = (text, values) => text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
// Never 0 or 100 for what is not quite that.
export const percent = (x) => `${x > 0 && x < 0.0995 ? Math.max(0.1, +(100 * x).toFixed(1)) : x > 0.995 && x < 1 ? Math.floor(1000 * x) / 10 : Math.round(100 * x)}%`;
export const times = (x) => (x < 1.095 ? x.toFixed(2) : x < 9.95 ? x.toFixed(1) : String(Math.round(x)));
export function duration(seconds) {
  const [unit, size] = seconds >= 1 ? ["s", 1] : seconds >= 1e-3 ? ["ms", 1e-3] : seconds >= 1e-6 || seconds === 0 ? ["µs", 1e-6] : ["ns", 1e-9];
  return `${+(seconds / size).toPrecision(3)} ${unit}`;
}

// What the chosen launch is compared with: {algorithm, how} for `simulate`, and the name of its string.
export function rival(algorithm, how, causal) {
  if (algorithm === "fa1") return { name: "fa2", algorithm: "fa2", how: { ...how, order: causal ? "longest-first" : "natural", persistent: false } };
  if (algorithm === "decode") return { name: how.splits === 1 ? "split" : "whole", algorithm, how: { ...how, splits: how.splits === 1 ? null : 1 } };
  if (how.persistent) return { name: "grid", algorithm, how: { ...how, persistent: false } };
  if (!causal) return { name: "fa1", algorithm: "fa1", how };
  return { name: how.order === "natural" ? "longest" : "natural", algorithm, how: { ...how, order: how.order === "natural" ? "longest-first" : "natural" } };
}

// The finding in one sentence; `a` is the launch, `b` the Timeline of its rival (or null).
export function scheduleTitle(gpu, a, b, other, how, s) {
  const it = {
    sms: gpu.sms, used: a.used, programs: a.programs.length, grid: a.grid, busy: percent(a.utilisation), waves: +a.waves.toFixed(2), splits: a.splits,
    order: s["short_" + how.order], tail: a.step ? duration(a.tail * a.step) : `${+a.tail.toFixed(1)} ${s.steps_unit}`, share: percent(a.makespan ? a.tail / a.makespan : 0),
    used2: b && (b.used === gpu.sms ? s.all_of_them : put(s.some_of_them, { n: b.used })), busy2: b && percent(b.utilisation), splits2: b?.splits, tail2: b && b.makespan ? percent(b.tail / b.makespan) : "",
  };
  if (!a.programs.length) return s.title_none;
  const base = how.persistent ? "persistent" : a.algorithm === "fa2" && how.causal ? "ordered" : a.splits > 1 || a.algorithm !== "decode" ? a.algorithm : "whole", [own, theirs] = b && [a, b].map((x) => x.makespan * (x.step ?? 1));
  const compare = !b || !own || !theirs ? "" : Math.abs(own / theirs - 1) < 0.005 ? s.as_soon : own > theirs ? s.sooner : s.later;
  const ratio = b && own && theirs ? times(Math.max(own / theirs, theirs / own)) : "";
  const say = put(s[`title_${base}_${a.used < a.sms.length ? "some" : "all"}`] ?? s[`title_${base}`], it);
  return compare ? `${say}${s.join}${put(compare, { ...it, other: put(s["other_" + other], it), x: ratio })}` : say;
}
