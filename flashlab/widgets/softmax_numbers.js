// What SoftmaxStepper shows, without the showing: one row through all blocks, knocked out or not, and the words for
// it. Put in front of softmax_stepper.js (one module for the browser); tested alone with node against Python.

const masked = (x) => x === null || x === undefined;
const MINUS = "−";

// One row through all blocks, knocked out or not; one object a block. Sums carry one more column of ones: the mass.
export function run(scores, values, block, unit, off = []) {
  const exp = (x) => (unit === "log2" ? 2 ** x : Math.exp(x));
  const blocks = [];
  let m = off.includes("max_at_0") ? 0 : -Infinity, l = 0, acc = Array(values[0].length + 1).fill(0);
  for (let a = 0; a < scores.length; a += block) {
    const x = scores.slice(a, a + block).map((s) => (masked(s) ? -Infinity : s));
    const old = { m, l, acc };
    m = Math.max(m, ...x);
    const shift = m === -Infinity ? 0 : m;
    const alpha = old.m === -Infinity ? 0 : exp(old.m - shift);
    const rate = off.includes("upside_down") && alpha ? 1 / alpha : alpha;
    const onSum = off.includes("sum") ? 1 : rate, onAcc = off.includes("acc") ? 1 : rate;
    const p = x.map((s) => exp(s - shift));
    const kept = { l: old.l * onSum, acc: old.acc.map((v) => v * onAcc) };
    l = kept.l + p.reduce((s, w) => s + w, 0);
    acc = kept.acc.map((v, c) => v + p.reduce((s, w, i) => s + (w ? w * ([...values[a + i], 1][c]) : 0), 0));
    blocks.push({ from: a, to: a + x.length, old, m, alpha, onSum, onAcc, p, kept, l, acc });
  }
  return blocks;
}

export const quotient = (acc, l, c) => (l === 0 && acc[c] === 0 ? 0 : acc[c] / l);

// 4 significant digits, a real minus sign, ∞; tiny rounding is not shown.
export function number(x, digits = 4) {
  if (masked(x)) return MINUS + "∞";
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return (x < 0 ? MINUS : "") + "∞";
  const size = Math.abs(x);
  if (size < 1e-12) return "0";
  const text = size >= 1e6 || size < 1e-4 ? x.toExponential(2).replace("e+", "e") : String(+x.toPrecision(digits));
  return text.replaceAll("-", MINUS);
}

// A conversion rate; in base 2 powers of two are written as fractions.
export function rate(alpha, unit) {
  const power = Math.log2(alpha), whole = Math.round(power);
  if (unit !== "log2" || !(whole < 0 && whole >= -10 && Math.abs(power - whole) < 1e-9)) return number(alpha);
  return { "-1": "½", "-2": "¼", "-3": "⅛" }[whole] ?? `1/${2 ** -whole}`;
}

export const fill = (text, values) => text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
const isOne = (x) => Math.abs(x - 1) < 1e-12;

// What frame n shows of one row. `frames` are Python's numbers for that row, used while nothing is knocked out.
export function view(row, blocks, frames, n, c) {
  const b = Math.ceil(n / 2) - 1, phase = n === 0 ? "start" : n % 2 ? "convert" : "add";
  if (b < 0) return { ...row, b, phase, m: null, seen: 0, from: 0, to: 0 };
  const k = blocks[b], before = frames[b - 1], now = frames[b];
  const done = phase === "add", seen = done ? k.to : k.from, ref = done ? now.ref : before?.ref;
  const l = done ? k.l : k.kept.l, acc = done ? k.acc : k.kept.acc;
  const out = quotient(acc, l, c), wanted = ref?.[c];
  return {
    ...row, b, phase, k, seen, from: k.from, to: k.to, oldM: k.old.m, m: k.m, alpha: k.alpha,
    empty: b === 0 || (k.old.l === 0 && k.old.acc.every((v) => v === 0)), masked: k.p.every((w) => w === 0),
    l, acc: acc[c], out, mass: quotient(acc, l, acc.length - 1), ref: wanted, last: done && b === blocks.length - 1,
    off: out - wanted, agrees: Math.abs(out - wanted) <= 1e-9 * (1 + Math.abs(wanted)),
  };
}

// The finding of a frame in one sentence; all rows of the frame.
export function sentence(views, strings, unit) {
  if (views[0].phase === "start") return strings.start;
  const part = (v) => {
    const k = v.k, it = { m: number(v.m), old: number(v.oldM), l: number(v.l), acc: number(v.acc), out: number(v.out) };
    if (v.phase === "add") return fill(v.last ? strings.last : strings.added, it);
    if (v.masked && v.m === v.oldM) return strings.masked;
    if (v.empty) return fill(strings.first, it);
    if (isOne(v.alpha)) return fill(strings.same, it);
    it.alpha = it.sum = rate(k.onSum, unit);
    it.acc = rate(k.onAcc, unit);
    return fill(k.onSum === k.onAcc ? strings.moved : strings.moved_apart, it);
  };
  const named = (v) => (views.length > 1 ? fill(strings.row, { row: v.name }) : "") + part(v);
  return fill(strings.block, { b: views[0].b + 1 }) + views.map(named).join(strings.join);
}
