// What MemoryMap shows, without the showing: bytes of each tensor that attention keeps, and where a GPU's memory ends.
// Behind quantities.js and in front of memory_map.js; tested with node against flashlab.needs.

const SIZE_OF = { float64: 8, float32: 4, float16: 2, bfloat16: 2 };

// [{name, bytes, during}] of one algorithm ("standard" or "fa"). during: "kept" (all layers at once) or "work" (the
// layer that runs). p: the problem; o: {layers, dropout, training}.
export function needs(p, algorithm, o) {
  const e = SIZE_OF[p.dtype], q = e * p.B * p.Hq * p.Nq * p.D, kv = e * p.B * p.Hkv * p.Nk * p.D;
  const square = p.B * p.Hq * p.Nq * p.Nk, standard = algorithm === "standard", drops = o.training && o.dropout > 0;
  const kept = (name, bytes) => ({ name, bytes: bytes * o.layers, during: "kept" }), work = (name, bytes) => ({ name, bytes, during: "work" });
  const lse = 4 * p.B * p.Hq * p.Nq;
  if (!o.training) {
    const own = standard ? [work("s", e * square), work("p", e * square)] : [work("lse", lse)];
    return [kept("k_cache", kv), kept("v_cache", kv), work("q", q), ...own, work("o", q)];
  }
  const found = [kept("q", q), kept("k", kv), kept("v", kv)];
  if (standard) found.push(kept("p", e * square), ...(drops ? [kept("p_dropped", e * square), kept("mask", square)] : []));
  else found.push(kept("lse", lse), ...(drops ? [kept("seed", 8)] : []));
  // The peak is in the backward pass: S is long gone, dP and dS are there.
  const own = standard ? [work("dp", e * square), work("ds", e * square)] : [work("delta", lse)];
  return [...found, kept("o", q), ...own, work("do", q), work("dq", q), work("dk", kv), work("dv", kv)];
}

export const total = (parts, during) => parts.reduce((sum, x) => sum + (during && x.during !== during ? 0 : x.bytes), 0);

// The same problem with N tokens: queries and keys where it is square, else keys only.
export const at = (p, n) => ({ ...p, Nk: n, Nq: p.square ? n : p.Nq });

// The largest N that fits into `memory` bytes; 0 when not even one token does, `most` when all up to there do.
export function largest(p, algorithm, o, memory, most = 2 ** 40) {
  const fits = (n) => total(needs(at(p, n), algorithm, o)) <= memory;
  let low = 0, high = most;
  if (fits(most)) return most;
  while (high - low > 1) {
    const mid = Math.floor((low + high) / 2);
    if (fits(mid)) low = mid;
    else high = mid;
  }
  return low;
}
