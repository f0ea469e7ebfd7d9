// Quantities as people read them, and small parts that several widgets share. Put in front of a widget's own files
// (one module for the browser); tested alone with node.

export const esc = (s) => String(s).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
export const fill = (text, values) => text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);

// Three digits and a decimal prefix: 412 GB, 1.6 GB, 980 B. Whole numbers below 1,000 stay whole.
const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
export function si(x, unit, digits = 3) {
  if (!Number.isFinite(x)) return `∞ ${unit}`;
  const round = (v) => +v.toPrecision(digits);
  const [size, prefix] = PREFIXES.find(([size]) => round(x / size) >= 1) ?? [1, ""];
  return `${round(x / size)} ${prefix}${unit}`;
}
export const bytes = (x) => si(x, "B");
export const flops = (x) => si(x, "FLOP/s");

export function seconds(x) {
  const [size, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [0, "ns"]].find(([size]) => +(x / (size || 1e-9)).toPrecision(3) >= 1 || !size);
  return `${+(x / (size || 1e-9)).toPrecision(3)} ${unit}`;
}

// Numbers of tokens: 32k for 32,768 and 1M for 1,048,576 (powers of two, as people say them), else with commas.
export function tokens(n) {
  if (n >= 2 ** 20 && n % 2 ** 20 === 0) return `${n / 2 ** 20}M`;
  if (n >= 1024 && n % 1024 === 0 && n < 2 ** 20) return `${n / 1024}k`;
  return whole(n);
}
export const whole = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
export const short = (x, digits = 2) => (x >= 100 ? whole(x) : String(+x.toPrecision(digits)));

// The positions of a slider over N: powers of two and one step between, and what was given.
export function lengths(given, low = 128, high = 2 ** 20) {
  const all = new Set([given]);
  for (let n = low; n <= high; n *= 2) (all.add(n), n * 1.5 <= high && all.add(n * 1.5));
  return [...all].filter((n) => n > 0).sort((a, b) => a - b);
}

// A decade grid: [exponent, ...] that covers [low, high].
export const decades = (low, high) => {
  const found = [];
  for (let e = Math.ceil(Math.log10(low) - 1e-9); e <= Math.log10(high) + 1e-9; e++) found.push(e);
  return found;
};

// What a person typed for a whole number from `low` to `high`: the number, or null.
export function typed(text, low, high) {
  const clean = String(text).replace(/[,_\s]/g, "").toLowerCase(), m = /^(\d+)(k|m)?$/.exec(clean);
  if (!m) return null;
  const n = +m[1] * ({ k: 1024, m: 2 ** 20 }[m[2]] ?? 1);
  return n >= low && n <= high ? n : null;
}
