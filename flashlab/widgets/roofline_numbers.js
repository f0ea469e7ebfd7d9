// What Roofline shows, without the showing: points, roofs, and the measurements that belong to them. Behind
// flows_numbers.js; tested with node against flashlab.memory and the kept records.

export const NAMES = ["standard", "fa1", "fa2", "decode"];
// Whose order of loads and stores a measured program has.
const OF_PEER = { standard: "standard", fa1: "fa1", ...Object.fromEntries(["fa2", "fa3", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient", "flash-attn", "flash-attn-3", "flash-attn-4", "tutorial", "flex"].map((peer) => [peer, "fa2"])) };

// Decoding: one new token for the same cache.
export const decoding = (p) => ({ ...p, Nq: 1, causal: false });

// [{name, intensity, rate, seconds, bound, bytes, flops, exps}]; rate in FLOP/s of matrix products.
export function points(p, direction, level, card) {
  const peak = card.peak[p.dtype], names = NAMES.filter((n) => n !== "decode" || direction === "forward");
  return names.map((name) => {
    const t = traffic(name === "decode" ? decoding(p) : p, name, direction, level, card), time = roofTime(t, card.hbm_bandwidth, peak);
    return { name, ...t, ...time, rate: t.flops / time.seconds };
  });
}

export const ridge = (p, card) => card.peak[p.dtype] / card.hbm_bandwidth;

// FLOP/s at which FlashAttention-2 would keep the exponential units busy all the time.
export function expRoof(found, card) {
  const fa2 = found.find((x) => x.name === "fa2");
  return fa2.exps ? (card.exp_rate * fa2.flops) / fa2.exps : Infinity;
}

// Measurements of this GPU, dtype, D, mask and direction: [{peer, N, rate, intensity, date, nearest}]. `nearest`: taken at
// the length closest to the problem's.
export function laidOver(p, direction, level, card, records) {
  const short = (name) => name.replace(/NVIDIA |Tesla |GeForce /g, ""), found = [], known = {}; // intensities, of many programs the same
  for (const record of records) {
    if (!(short(record.gpu) === card.name || short(record.gpu).startsWith(card.name + " "))) continue;
    const at = Object.fromEntries(record.columns.map((c, i) => [c, i]));
    for (const row of record.rows) {
      const algorithm = OF_PEER[row[at.peer]], same = row[at.dtype] === p.dtype && row[at.D] === p.D && row[at.causal] === Boolean(p.causal);
      if (!algorithm || !same || row[at.direction] !== direction) continue;
      const N = row[at.N], q = { ...p, B: row[at.B], Hq: row[at.H], Hkv: row[at.H], Nq: N, Nk: N, causal: row[at.causal] };
      const intensity = (known[[algorithm, q.B, q.Hq, N]] ??= traffic(q, algorithm, direction, level, card).intensity);
      found.push({ peer: row[at.peer], N, rate: row[at.tflops] * 1e12, intensity, date: record.date, gpu: record.gpu, versions: record.versions });
    }
  }
  const far = (x) => Math.abs(Math.log2(x.N / p.Nk)), least = Math.min(...found.map(far));
  return found.map((x) => ({ ...x, nearest: far(x) === least }));
}

// Where measurements are from, each GPU, day and set of versions once.
export const sources = (found) => Object.fromEntries(["gpu", "date", "versions"].map((k) => [k, [...new Set(found.map((m) => m[k]))].join(", ")]));
