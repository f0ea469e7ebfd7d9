// flashlab/flows.py once more, for the browser: bytes at both levels and FLOPs of each algorithm, from the sizes alone.
// Behind quantities.js; tested with node against flashlab.memory, to the byte.

export const ITEMSIZE = { float64: 8, float32: 4, float16: 2, bfloat16: 2 };
const F32 = 4;
// bytes: asked for by programs; hbm: those that an L2 lets through.
const flow = (op, tensor, bytes, hbm = bytes) => ({ op, tensor, bytes, hbm });
const ifFits = (card, op, tensor, n) => flow(op, tensor, n, 2 * n <= room(card) ? 0 : n);
const room = (card) => Math.floor(card.l2_bytes / (card.l2_partitions ?? 1)); // of L2, for data that all SMs read

// Which query block meets which key block in one head, summed up.
export function tiles(p) {
  const off = !p.causal ? null : p.causal === "bottom-right" ? p.Nk - p.Nq : 0;
  const t = { rowBlocks: Math.ceil(p.Nq / p.block_q), keyBlocks: Math.ceil(p.Nk / p.block_k), keysMet: 0, rowsMet: 0, elements: 0, seen: 0, keysSeen: 0, qRows: 0, at: [] };
  const steps = new Array(t.keyBlocks + 1).fill(0);
  for (let i = 0; i < t.rowBlocks; i++) {
    const r = Math.min(p.block_q, p.Nq - i * p.block_q), lastRow = Math.min((i + 1) * p.block_q, p.Nq) - 1;
    const sight = off === null ? p.Nk : Math.min(Math.max(lastRow + off + 1, 0), p.Nk), last = Math.ceil(sight / p.block_k);
    t.keysMet += sight;
    t.rowsMet += r * last;
    t.elements += r * Math.min(last * p.block_k, p.Nk); // key blocks loaded whole
    t.seen += r * sight; // and up to the last key in sight
    t.keysSeen = Math.max(t.keysSeen, sight);
    if (last) t.qRows += r;
    steps[0] += r;
    steps[last] -= r;
  }
  for (let j = 0, rows = 0; j < t.keyBlocks; j++) t.at.push((rows += steps[j])); // rows that each key block meets
  return t;
}

// How many times the bytes that all `blocks` programs of a head read come from HBM, for all heads (flows.trips).
function trips(card, blocks, heads, headBytes, ownBytes) {
  const programs = blocks * heads, share = (start, end, free) => {
    const low = Math.min(start, end), high = Math.max(start, end);
    return high <= free ? 1 : low > free ? 0 : (free - low) / (high - low);
  };
  let total = 0, before = 0;
  for (let first = 0; first < programs; first += card.sms) {
    const last = Math.min(first + card.sms, programs) - 1, touched = Math.floor(last / blocks) - Math.floor(first / blocks) + 1;
    total += touched - (first % blocks > 0 ? share(before * headBytes, touched * headBytes, room(card) - (last - first + 1) * ownBytes) : 0);
    before = touched;
  }
  return total;
}
const between = (n, low, high) => Math.min(Math.max(even(n), low), high);
function sharedReads(p, t, card, own) { // own: tensors like Q that a program moves for itself; K and V read by programs of query blocks, which come head by head
  const n = t.keysSeen * p.D * p.e, asked = p.B * p.Hq * t.keysMet * p.D * p.e;
  const times = trips(card, t.rowBlocks * (p.Hq / p.Hkv), p.B * p.Hkv, 2 * n, own * Math.min(p.block_q, p.Nq) * p.D * p.e);
  return ["k", "v"].map((x) => flow("load", x, asked, between(times * n, p.B * p.Hkv * n, asked)));
}

// The share of a loop over `loop` bytes that a cache of `free` bytes, which throws lines out at random, does not hold.
export function missing(loop, free) {
  if (loop <= free) return 0;
  if (free <= 0) return 1;
  let m = 1;
  for (let i = 0; i < 100; i++) m = 1 - Math.exp((-m * loop) / free);
  return m;
}
// FlashAttention-1's rounds over a head's rows, one for each key block (flows.Rounds).
function rounds(p, t, card, inFlight, rowBytes) {
  const lostOf = (rows) => rows * missing(inFlight * rows * rowBytes, room(card)), heads = p.B * p.Hq;
  const lost = t.at.map(lostOf), sum = (xs) => xs.reduce((a, b) => a + b, 0), again = sum(lost.slice(1)), all = sum(lost), after = lostOf(p.Nq);
  return {
    load: (x, w) => flow("load", x, heads * t.rowsMet * w, heads * (t.at[0] ?? 0) * w + even(heads * again * w)),
    store: (x, w) => flow("store", x, heads * (p.Nq + t.rowsMet) * w, heads * p.Nq * w + even(heads * again * w)),
    loadAgain: (x, w) => flow("load", x, heads * (p.Nq + t.rowsMet) * w, even(heads * (all + after) * w)),
  };
}
function even(x) { // as Python rounds: halves to the even neighbour
  const r = Math.round(x);
  return Math.abs(x % 1) === 0.5 && r % 2 ? r - 1 : r;
}

const PASSES = {
  standard_forward(p, t, card) {
    const s = p.square * p.e, d = p.D * p.e, flows = [
      flow("load", "q", p.rows * d), flow("load", "k", p.keys * d), flow("store", "s", s), ifFits(card, "load", "s", s), flow("store", "p", s),
      ifFits(card, "load", "p", s), flow("load", "v", p.keys * d), flow("store", "o", p.rows * d)];
    return { flows, flops: 4 * p.square * p.D, exps: p.square };
  },
  standard_backward(p, t, card) {
    const s = p.square * p.e, q = p.rows * p.D * p.e, kv = p.keys * p.D * p.e, flows = [
      flow("load", "p", s), flow("load", "do", q), flow("store", "dv", kv), flow("load", "do", q), flow("load", "v", kv), flow("store", "dp", s),
      ifFits(card, "load", "p", s), ifFits(card, "load", "dp", s), flow("store", "ds", s), ifFits(card, "load", "ds", s), flow("load", "k", kv), flow("store", "dq", q),
      ifFits(card, "load", "ds", s), flow("load", "q", q), flow("store", "dk", kv)];
    return { flows, flops: 8 * p.square * p.D, exps: 0 };
  },
  fa1_forward(p, t, card) {
    const heads = p.B * p.Hq, met = heads * t.rowsMet, d = p.D, walked = p.keys * (p.Hq / p.Hkv) * d * p.e;
    const r = rounds(p, t, card, Math.min(card.sms, heads), d * (p.e + F32) + 2 * F32);
    const flows = [
      r.store("o_fp32", d * F32), r.store("l", F32), r.store("m", F32), ...["k", "v"].map((x) => flow("load", x, walked, p.keys * d * p.e)),
      r.load("q", d * p.e), r.loadAgain("o_fp32", d * F32), r.loadAgain("l", F32), r.loadAgain("m", F32),
      flow("store", "o", p.rows * d * p.e), flow("store", "lse", p.rows * F32)];
    return { flows, flops: 4 * heads * t.elements * d, exps: heads * t.elements + 2 * met };
  },
  fa1_backward(p, t, card) {
    const heads = p.B * p.Hq, d = p.D, kv = p.keys * d * p.e;
    const r = rounds(p, t, card, Math.min(card.sms, p.B * p.Hkv) * (p.Hq / p.Hkv), d * (3 * p.e + F32) + F32);
    const flows = [
      r.store("dq_fp32", d * F32), flow("load", "k", kv), flow("load", "v", kv), ...["q", "o", "do"].map((x) => r.load(x, d * p.e)), r.load("lse", F32),
      r.loadAgain("dq_fp32", d * F32), flow("store", "dk", kv), flow("store", "dv", kv), flow("store", "dq", p.rows * d * p.e)];
    return { flows, flops: 10 * heads * t.elements * d, exps: heads * t.elements };
  },
  fa2_forward(p, t, card) {
    const heads = p.B * p.Hq, scores = heads * t.seen, flows = [
      flow("load", "q", p.rows * p.D * p.e), ...sharedReads(p, t, card, 2),
      flow("store", "o", p.rows * p.D * p.e), flow("store", "lse", p.rows * F32)];
    return { flows, flops: 4 * scores * p.D, exps: scores + heads * t.rowsMet };
  },
  fa2_backward(p, t, card) {
    const heads = p.B * p.Hq, kvHeads = p.B * p.Hkv, scores = heads * t.elements, met = heads * t.rowsMet, group = p.Hq / p.Hkv;
    const q = p.rows * p.D * p.e, kv = p.keys * p.D * p.e, row = p.rows * F32, width = p.D * p.e;
    const times = trips(card, t.keyBlocks, kvHeads, group * t.qRows * (2 * width + 2 * F32), 4 * Math.min(p.block_k, p.Nk) * width);
    const rowsOf = (x, w) => {
      const n = group * t.qRows * w;
      return flow("load", x, met * w, between(times * n, Math.min(kvHeads * n, met * w), met * w));
    };
    const flows = [
      flow("load", "o", q), flow("load", "do", q), flow("store", "delta", row),
      flow("load", "k", kv), flow("load", "v", kv), rowsOf("q", width), rowsOf("do", width), rowsOf("lse", F32), rowsOf("delta", F32), flow("store", "dk", kv), flow("store", "dv", kv),
      flow("load", "q", q), flow("load", "do", q), flow("load", "lse", row), flow("load", "delta", row), ...sharedReads(p, t, card, 3), flow("store", "dq", q)];
    return { flows, flops: (8 * scores + 6 * heads * t.seen) * p.D, exps: scores + heads * t.seen };
  },
  decode_forward(p, t, card) {
    const group = p.Hq / p.Hkv, packed = group * p.Nq, d = p.D, heads = p.B * p.Hkv;
    const tile = Math.min(p.block_q, Math.max(16, 2 ** Math.ceil(Math.log2(Math.max(packed, 1))))), blocks = Math.ceil(packed / tile);
    const splits = chooseSplits(p.B, p.Hkv, blocks, p.Nk, card.sms), part = Math.ceil(Math.ceil(p.Nk / splits) / p.block_k) * p.block_k;
    let read = 0, scores = 0;
    for (let block = 0; block < blocks; block++) {
      const size = Math.min(tile, packed - block * tile), seen = Math.min(Math.floor(((block + 1) * tile - 1) / group), p.Nq - 1) + p.Nk - p.Nq + 1;
      for (let split = 0; split < splits; split++) {
        const start = Math.min(split * part, p.Nk), keys = Math.max(Math.min(Math.min(start + part, p.Nk), seen) - start, 0);
        read += keys;
        scores += size * keys;
      }
    }
    const cache = heads * p.Nk * d * p.e, asked = heads * read * d * p.e, parts = splits * p.rows * F32;
    const flows = [
      flow("load", "cache_lengths", heads * blocks * splits * 4), flow("load", "q", splits * p.rows * d * p.e, p.rows * d * p.e),
      ...["k", "v"].map((x) => flow("load", x, asked, Math.min(cache, asked))),
      ...(splits > 1 ? [flow("store", "part_o", parts * d), flow("store", "part_lse", parts), ifFits(card, "load", "part_lse", parts), ifFits(card, "load", "part_o", parts * d)] : []),
      flow("store", "o", p.rows * d * p.e), flow("store", "lse", p.rows * F32)];
    return { flows, flops: 4 * heads * scores * d, exps: heads * scores + splits * p.rows };
  },
};

export function chooseSplits(batch, kvHeads, rowBlocks, keys, sms) {
  const programs = batch * kvHeads * rowBlocks;
  if (programs === 0 || programs >= sms || keys <= 512) return 1;
  const most = Math.max(1, Math.min(Math.floor((2 * sms) / programs), Math.floor(keys / 128)));
  const full = (n) => (n * programs) / (Math.ceil((n * programs) / sms) * sms), all = Array.from({ length: most }, (_, i) => i + 1);
  const best = Math.max(...all.map(full));
  return all.find((n) => full(n) >= 0.95 * best);
}

// Bytes {op tensor: n}, their sum, FLOPs of matrix products, exponentials, intensity; level "sm" | "hbm", card: {sms, l2_bytes}.
export function traffic(problem, algorithm, direction, level, card) {
  const e = ITEMSIZE[problem.dtype], p = { ...problem, e, rows: problem.B * problem.Hq * problem.Nq, keys: problem.B * problem.Hkv * problem.Nk };
  p.square = problem.B * problem.Hq * problem.Nq * problem.Nk;
  const found = PASSES[`${algorithm}_${direction}`](p, tiles(p), card), table = {};
  for (const f of found.flows) table[`${f.op} ${f.tensor}`] = (table[`${f.op} ${f.tensor}`] ?? 0) + (level === "sm" ? f.bytes : f.hbm);
  const sum = Object.values(table).reduce((a, b) => a + b, 0);
  return { table, bytes: sum, flops: found.flops, exps: found.exps, intensity: sum ? found.flops / sum : 0 };
}

// The longer of bytes / bandwidth and FLOPs / peak: {seconds, bound}.
export function roofTime(t, bandwidth, peak) {
  const memory = t.bytes / bandwidth, compute = t.flops / peak;
  return memory >= compute ? { seconds: memory, bound: "memory" } : { seconds: compute, bound: "compute" };
}
