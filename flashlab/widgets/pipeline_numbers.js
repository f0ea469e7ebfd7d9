// What PipelineTimeline shows, without the page: stretches out of packed logs, shares, views, sentences.
// A stretch is {i, who, unit, op, tile, block, start, end}; a log is {order, rows, end, who, stretches}, rows being those of a query block. Times are clocks.

export const UNITS = ["copy", "tensor", "exp", "fp32"];
export const put = (text, values) => text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
export const percent = (x) => `${x > 0.995 && x < 0.9995 ? Math.floor(1000 * x) / 10 : Math.round(100 * x)}\u00a0%`;
export const count = (x) => Math.round(x).toLocaleString("en");

function numbers([width, text]) {
  const data = atob(text), found = [];
  for (let i = 0; i < data.length; i += width) {
    let n = 0;
    for (let b = width - 1; b >= 0; b--) n = 256 * n + data.charCodeAt(i + b);
    found.push(n);
  }
  return found;
}

export function unpackLog(log) {
  const c = Object.fromEntries(Object.entries(log.columns).map(([name, column]) => [name, numbers(column)]));
  let start = 0;
  const stretches = c.after.map((after, i) => {
    const [unit, op] = log.what[c.what[i]];
    start += after;
    return { i, who: log.who[c.who[i]], unit, op, tile: log.tile[c.tile[i]], block: c.block[i], start, end: start + c.clocks[i] };
  });
  return { order: log.order, rows: log.rows, end: log.end, who: log.who, blocks: Math.max(...c.block) + 1, stretches };
}

const within = (e, from, to) => Math.max(0, Math.min(e.end, to) - Math.max(e.start, from));
// Share of a view's time, 0 to 1, of the stretches for which `test` holds.
export function share(log, test, [from, to] = [0, log.end]) {
  const end = Math.min(to, log.end);
  return end <= from ? 0 : log.stretches.reduce((sum, e) => sum + (test(e) ? within(e, from, end) : 0), 0) / (end - from);
}
export const busy = (log, unit, view) => share(log, (e) => e.unit === unit, view);

export const consumers = (log) => log.who.filter((who) => who.startsWith("consume")).sort();
// The rows of a step from top to bottom: [name, the stretches in it]. Step 1 has one warpgroup, which copies for itself.
export function lanes(log) {
  const own = (who) => (e) => e.who === who && ["wait", "exp", "fp32", "shared"].includes(e.unit);
  const partitions = log.who.includes("produce") ? [["producer", (e) => e.unit === "copy" || own("produce")(e)], ...consumers(log).map((who) => [`consumer${letter(who)}`, own(who)])]
    : [["copies", (e) => e.unit === "copy"], ["warpgroup", own("forward_kernel")]];
  return [...partitions, ...["tensor", "exp", "fp32"].map((unit) => [unit, (e) => e.unit === unit])].map(([name, test]) => [name, log.stretches.filter(test)]);
}

const products = (log, block) => log.stretches.filter((e) => e.unit === "tensor" && e.block === block);
// [from, to] of a view: all; the middle of the first query block; where the first block ends and the second begins.
export function pipelineView(logs, name) {
  const all = [0, Math.max(...logs.map((log) => log.end))];
  if (name === "whole") return all;
  const last = logs.at(-1), clocks = products(last, 0)[0].end - products(last, 0)[0].start;
  if (name === "steady") {
    const from = products(last, 0).find((e) => e.tile[0] === "k" && e.tile[1] === 2).start - clocks;
    return [from, from + 15 * clocks];
  }
  const ends = logs.map((log) => Math.max(...products(log, 0).map((e) => e.end))), begins = logs.map((log) => products(log, 1)[0].start);
  return [Math.min(...ends) - 5 * clocks, Math.max(...begins) + 5 * clocks];
}
// A view no wider than the whole and no narrower than 400 clocks, `factor` times as wide, around `middle`.
export function zoomed([from, to], factor, middle, end) {
  const width = Math.max(400, Math.min(end, (to - from) * factor)), share = to > from ? (middle - from) / (to - from) : 0.5;
  const start = Math.max(0, Math.min(end - width, middle - share * width));
  return [start, start + width];
}
export const follow = ([from, to], clock, end) => { // the view moved so that the clock is in it
  if (clock >= from && clock <= to) return [from, to];
  const start = Math.max(0, Math.min(end - (to - from), clock - (to - from) / 4));
  return [start, start + to - from];
};

// Time in the middle of the first query block, from its second product of scores to its last but one.
export function middle(log) {
  const scores = products(log, 0).filter((e) => e.tile[0] === "k");
  const own = scores.filter((e) => e.who === scores[0].who);
  return [own[2].start, own.at(-2).start];
}
// Clocks without a product at the change from the first query block to the second: from when the first warpgroup has made
// its last product of the one until all of them add to the output of the other.
export function pause(log) {
  const of = (block, who) => products(log, block).filter((e) => e.who === who), whos = [...new Set(products(log, 0).map((e) => e.who))];
  const from = Math.min(...whos.map((who) => of(0, who).at(-1).end)), to = Math.max(...whos.map((who) => of(1, who).find((e) => e.tile[0] === "v").start));
  return to - from - log.stretches.reduce((sum, e) => sum + (e.unit === "tensor" ? within(e, from, to) : 0), 0);
}

const mark = { q: "Q", k: "K", v: "V", o: "O" };
export const tileName = ([tensor, n]) => `${mark[tensor]}${n}`;
// What stands in a bar, shortest form. Products are S (of K) and O (of V); the letter of the consumer is put before them.
export function label(e) {
  if (e.unit === "tensor") return `${e.tile[0] === "k" ? "S" : "O"}${e.tile[1]}`;
  if (e.unit === "wait") return e.op === "wgmma" ? `${e.tile[0] === "k" ? "S" : "O"}${e.tile[1]}` : e.op.startsWith("turn") ? "turn" : tileName(e.tile);
  return e.tile ? (e.unit === "copy" ? tileName(e.tile) : String(e.tile[1])) : "";
}
export const letter = (who) => (who.startsWith("consume ") ? who.at(-1) : "");

// One stretch in words.
export function tell(e, step, s) {
  const name = s.who[e.who.replace(" ", "")] ?? e.who, tile = e.tile ? tileName(e.tile) : "", at = { n: e.tile?.[1] };
  let what = e.unit === "shared" ? s.does.shared : s.does[e.op] ?? s.does[e.unit];
  if (e.unit === "tensor") what = e.tile[0] === "k" ? s.does.scores : s.does.output;
  if (e.unit === "wait") what = put(e.op === "wgmma" ? s.waits[e.tile[0] === "k" ? "scores" : "output"] : s.waits[e.op.replace(/\[.*/, "")], { ...at, tile, barrier: e.op });
  return put(s.tell, { step, who: name, what: put(what, { ...at, tile }), block: e.block + 1, start: count(e.start), end: count(e.end), clocks: count(e.end - e.start) });
}

// What each lane does at a clock, in words.
export function now(log, clock, s) {
  return lanes(log).map(([name, stretches]) => {
    const at = stretches.filter((e) => e.start <= clock && clock < e.end).sort((a, b) => (a.unit === "wait") - (b.unit === "wait"))[0];
    // Inside a query block a consumer without a stretch has asked a unit that still serves the other one.
    const before = stretches.findLast((e) => e.end <= clock), after = stretches.find((e) => e.start > clock), queues = before && after && before.block === after.block;
    const idle = name.startsWith("consumer") ? (queues ? s.queues : s.nothing) : name === "warpgroup" ? s.nothing : s.idle;
    return [s.lane[name], at ? (at.unit === "wait" ? `${s.waiting} ${label(at)}` : `${letter(at.who) && ["tensor", "exp", "fp32"].includes(name) ? letter(at.who) + ": " : ""}${label(at) || s.unit[at.unit]}`) : idle];
  });
}

export function titleOf(shown, s) { // shown: [[step, log], ...], the last one is the subject
  const [step, log] = shown.at(-1), first = shown.length > 1 ? shown[0] : null;
  return put(first ? s.title_two : s.title_one, { step, busy: percent(busy(log, "tensor")), other: first?.[0], other_busy: first && percent(busy(first[1], "tensor")) });
}
// What to look at, and what the two have to do with each other in the model, better or not.
export function moreOf(shown, s) {
  const [step, log] = shown.at(-1), look = put(s.look[step], { pause: count(pause(log)), order: s.order[log.order] + (consumers(log).length > 2 ? s.three : "") });
  if (shown.length < 2) return look;
  const [other, before] = shown[0], ratio = before.end / log.end;
  const it = { step, other, clocks: count(log.end), other_clocks: count(before.end), times: Math.max(ratio, 1 / ratio).toFixed(2),
    inside: percent(busy(log, "tensor", middle(log))), other_inside: percent(busy(before, "tensor", middle(before))), pause: count(pause(log)), other_pause: count(pause(before)) };
  const said = put(Math.abs(ratio - 1) < 0.015 ? s.same : ratio > 1 ? s.sooner : s.later, it);
  const full = other < step && busy(before, "tensor", middle(before)) > 0.99;
  return [look, said, put(s.inside, it), full ? put(s.full, it) : ""].filter(Boolean).join(" ");
}
// The units that work most: all within two points of the busiest.
export function busiest(log) {
  const shares = UNITS.map((unit) => [unit, busy(log, unit)]), most = Math.max(...shares.map(([, x]) => x));
  return shares.filter(([, x]) => most - x <= 0.02).map(([unit]) => unit);
}
const rateOf = (rows, step, D, causal) => rows.find((r) => r.step === step && r.D === D && Boolean(r.causal) === causal);
const origin = (row) => ({ n: count(row.N), dtype: row.dtype, gpu: row.gpu, date: row.date });
export function measuredOf(rows, step, D, causal, s) {
  const row = rateOf(rows, step, D, causal);
  return row ? put(s.measured, { tflops: Math.round(row.tflops), ...origin(row) }) : s.not_measured;
}
// A row of the table: [its name with where the rates come from, the rates of all steps], or full sentences where that differs.
export function measuredRow(rows, steps, D, causal, s) {
  const found = steps.map((step) => rateOf(rows, step, D, causal)), known = found.filter(Boolean), one = known[0];
  if (!one) return [s.t_measured, steps.map(() => s.not_yet)];
  if (new Set(known.map((row) => JSON.stringify(origin(row)))).size > 1) return [s.t_measured, steps.map((step) => measuredOf(rows, step, D, causal, { ...s, not_measured: s.not_yet }))];
  return [put(s.t_rate, origin(one)), found.map((row) => (row ? String(Math.round(row.tflops)) : s.not_yet))];
}
// How far the model's ratio of two steps is from the measured one, where both were measured alike.
export function comparedOf(shown, rows, D, causal, s) {
  const [step, log] = shown.at(-1), [other, before] = shown[0], a = rateOf(rows, step, D, causal), b = rateOf(rows, other, D, causal);
  if (shown.length < 2 || !a || !b || ["N", "dtype", "gpu"].some((name) => a[name] !== b[name])) return "";
  const times = a.tflops / b.tflops, model = before.end / log.end, wins = (x) => (Math.abs(x - 1) < 0.015 ? 0 : Math.sign(x - 1));
  const said = put(s.compared, { gpu: a.gpu, n: count(a.N), dtype: a.dtype, step, other, times: times.toFixed(2), model: model.toFixed(2) });
  return [said, wins(times) * wins(model) < 0 ? s.contradicted : "", [step, other].includes(1) ? s.shared_sm : ""].filter(Boolean).join(" ");
}
