// flashlab/flows.py once more, for the browser: bytes at both levels and FLOPs of each algorithm, from the sizes alone.
// Behind quantities.js; tested with node against flashlab.memory, to the byte.

export const ITEMSIZE = { float64: 8, float32: 4, float16: 2, bfloat16: 2 };
const F32 = 4;
const flow = (op, tensor, bytes, once = bytes, resident = 0, missed = 0) => ({ op, tensor, bytes, once, resident, missed });
const ifFits = (op, tensor, n) => flow(op, tensor, n, 0, 2 * n, n);
const stays = (op, tensor, n, once, resident) => flow(op, tensor, n, Math.min(once, n), resident, n);
const through = (f, l2) => (f.resident <= l2 ? f.once : Math.min(Math.max(f.missed, f.once), f.bytes));

// Which query block meets which key block in one head, summed up.
export function tiles(p) {
  const off = !p.causal ? null : p.causal === "bottom-right" ? p.Nk - p.Nq : 0, blocks = Math.ceil(p.Nk / p.block_k);
  const t = { rowBlocks: Math.ceil(p.Nq / p.block_q), keyBlocks: blocks, keysMet: 0, rowsMet: 0, elements: 0, keysSeen: 0, qRows: 0 };
  for (let i = 0; i < t.rowBlocks; i++) {
    const r = Math.min(p.block_q, p.Nq - i * p.block_q), lastRow = Math.min((i + 1) * p.block_q, p.Nq) - 1;
    const last = off === null ? blocks : Math.ceil(Math.min(Math.max(lastRow + off + 1, 0), p.Nk) / p.block_k);
    const keys = Math.min(last * p.block_k, p.Nk);
    t.keysMet += keys;
    t.rowsMet += r * last;
    t.elements += r * keys;
    t.keysSeen = Math.max(t.keysSeen, keys);
    if (last) t.qRows += r;
  }
  return t;
}

const headsAtOnce = (inFlight, blocks, heads) => Math.min(Math.ceil(inFlight / Math.max(blocks, 1)), heads);
function headsOfAllWaves(inFlight, blocks, heads) {
  let sum = 0;
  for (let first = 0, programs = blocks * heads; first < programs; first += inFlight) {
    sum += Math.floor((Math.min(first + inFlight, programs) - 1) / blocks) - Math.floor(first / blocks) + 1;
  }
  return sum;
}
function sharedReads(p, sms, blocks, met, seen) { // K and V read by programs of query blocks, which come head by head
  const group = p.Hq / p.Hkv, width = p.D * p.e, heads = p.B * p.Hkv, n = seen * width;
  const at = headsAtOnce(sms, blocks * group, heads), waves = headsOfAllWaves(sms, blocks * group, heads);
  return ["k", "v"].map((x) => flow("load", x, met * width, heads * n, at * 2 * n, waves * n));
}

const PASSES = {
  standard_forward(p) {
    const s = p.square * p.e, d = p.D * p.e, flows = [
      flow("load", "q", p.rows * d), flow("load", "k", p.keys * d), flow("store", "s", s), ifFits("load", "s", s), flow("store", "p", s),
      ifFits("load", "p", s), flow("load", "v", p.keys * d), flow("store", "o", p.rows * d)];
    return { flows, flops: 4 * p.square * p.D, exps: p.square };
  },
  standard_backward(p) {
    const s = p.square * p.e, q = p.rows * p.D * p.e, kv = p.keys * p.D * p.e, flows = [
      flow("load", "p", s), flow("load", "do", q), flow("store", "dv", kv), flow("load", "do", q), flow("load", "v", kv), flow("store", "dp", s),
      ifFits("load", "p", s), ifFits("load", "dp", s), flow("store", "ds", s), ifFits("load", "ds", s), flow("load", "k", kv), flow("store", "dq", q),
      ifFits("load", "ds", s), flow("load", "q", q), flow("store", "dk", kv)];
    return { flows, flops: 8 * p.square * p.D, exps: 0 };
  },
  fa1_forward(p, t, sms) {
    const heads = p.B * p.Hq, met = heads * t.rowsMet, d = p.D, all = p.rows + met, walked = p.keys * (p.Hq / p.Hkv) * d * p.e;
    const resident = Math.min(sms, heads) * p.Nq * (d * (p.e + F32) + 2 * F32), q = heads * t.qRows * d * p.e;
    const flows = [
      stays("store", "o_fp32", all * d * F32, p.rows * d * F32, resident), ...["l", "m"].map((x) => stays("store", x, all * F32, p.rows * F32, resident)),
      ...["k", "v"].map((x) => stays("load", x, walked, p.keys * d * p.e, resident)), stays("load", "q", met * d * p.e, q, resident),
      stays("load", "o_fp32", all * d * F32, 0, resident), ...["l", "m"].map((x) => stays("load", x, all * F32, 0, resident)),
      flow("store", "o", p.rows * d * p.e), flow("store", "lse", p.rows * F32)];
    return { flows, flops: 4 * heads * t.elements * d, exps: heads * t.elements + 2 * met };
  },
  fa1_backward(p, t, sms) {
    const heads = p.B * p.Hq, met = heads * t.rowsMet, d = p.D, all = p.rows + met, q = heads * t.qRows, kv = p.keys * d * p.e;
    const resident = Math.min(sms, p.B * p.Hkv) * (p.Hq / p.Hkv) * p.Nq * (d * (3 * p.e + F32) + F32);
    const flows = [
      stays("store", "dq_fp32", all * d * F32, p.rows * d * F32, resident), flow("load", "k", kv), flow("load", "v", kv),
      ...["q", "o", "do"].map((x) => stays("load", x, met * d * p.e, q * d * p.e, resident)), stays("load", "dq_fp32", all * d * F32, 0, resident),
      stays("load", "lse", met * F32, q * F32, resident), flow("store", "dk", kv), flow("store", "dv", kv), flow("store", "dq", p.rows * d * p.e)];
    return { flows, flops: 10 * heads * t.elements * d, exps: heads * t.elements };
  },
  fa2_forward(p, t, sms) {
    const heads = p.B * p.Hq, scores = heads * t.elements, flows = [
      flow("load", "q", p.rows * p.D * p.e), ...sharedReads(p, sms, t.rowBlocks, heads * t.keysMet, t.keysSeen),
      flow("store", "o", p.rows * p.D * p.e), flow("store", "lse", p.rows * F32)];
    return { flows, flops: 4 * scores * p.D, exps: scores + heads * t.rowsMet };
  },
  fa2_backward(p, t, sms) {
    const heads = p.B * p.Hq, kvHeads = p.B * p.Hkv, scores = heads * t.elements, met = heads * t.rowsMet, group = p.Hq / p.Hkv;
    const q = p.rows * p.D * p.e, kv = p.keys * p.D * p.e, row = p.rows * F32, width = p.D * p.e;
    const at = headsAtOnce(sms, t.keyBlocks, kvHeads), waves = headsOfAllWaves(sms, t.keyBlocks, kvHeads);
    const resident = at * group * t.qRows * (2 * width + 2 * F32);
    const rowsOf = (x, w) => flow("load", x, met * w, kvHeads * group * t.qRows * w, resident, waves * group * t.qRows * w);
    const flows = [
      flow("load", "o", q), flow("load", "do", q), flow("store", "delta", row),
      flow("load", "k", kv), flow("load", "v", kv), rowsOf("q", width), rowsOf("do", width), rowsOf("lse", F32), rowsOf("delta", F32), flow("store", "dk", kv), flow("store", "dv", kv),
      flow("load", "q", q), flow("load", "do", q), flow("load", "lse", row), flow("load", "delta", row), ...sharedReads(p, sms, t.rowBlocks, heads * t.keysMet, t.keysSeen), flow("store", "dq", q)];
    return { flows, flops: 14 * scores * p.D, exps: 2 * scores };
  },
  decode_forward(p, t, sms) {
    const group = p.Hq / p.Hkv, packed = group * p.Nq, d = p.D, heads = p.B * p.Hkv;
    const tile = Math.min(p.block_q, Math.max(16, 2 ** Math.ceil(Math.log2(Math.max(packed, 1))))), blocks = Math.ceil(packed / tile);
    const splits = chooseSplits(p.B, p.Hkv, blocks, p.Nk, sms), part = Math.ceil(Math.ceil(p.Nk / splits) / p.block_k) * p.block_k;
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
      ...(splits > 1 ? [flow("store", "part_o", parts * d), flow("store", "part_lse", parts), ifFits("load", "part_lse", parts), ifFits("load", "part_o", parts * d)] : []),
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
  const found = PASSES[`${algorithm}_${direction}`](p, tiles(p), card.sms), table = {};
  for (const f of found.flows) table[`${f.op} ${f.tensor}`] = (table[`${f.op} ${f.tensor}`] ?? 0) + (level === "sm" ? f.bytes : through(f, card.l2_bytes));
  const sum = Object.values(table).reduce((a, b) => a + b, 0);
  return { table, bytes: sum, flops: found.flops, exps: found.exps, intensity: sum ? found.flops / sum : 0 };
}

// The longer of bytes / bandwidth and FLOPs / peak: {seconds, bound}.
export function roofTime(t, bandwidth, peak) {
  const memory = t.bytes / bandwidth, compute = t.flops / peak;
  return memory >= compute ? { seconds: memory, bound: "memory" } : { seconds: compute, bound: "compute" };
}
