// One step of PipelineTimeline as SVG: a row for each lane, bars with names where there is room, waits hatched.

const LEFT = 122, RIGHT = 50, ROW = 25, GAP = 5, TOP = 16;
const safe = (s) => String(s).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const textWidth = (words) => [...words].reduce((sum, c) => sum + (c > "\u2e80" ? 12 : 6.7), 0);
const kind = { "consume 0": "zero", "consume 1": "one", "consume 2": "two", forward_kernel: "own" }, PATTERN = { wait: "w", one: "o", two: "t" };

// Where the rows of a step lie: [name, stretches, y, height, share of its time in the view], and the height of all.
export function layout(log, view) {
  let y = TOP;
  const last = consumers(log).length ? `consumer${consumers(log).length - 1}` : "warpgroup";
  const rows = lanes(log).map(([name, stretches]) => {
    const height = name === "producer" ? ROW + 13 : ROW, row = { name, stretches, y, height };
    y += height + GAP + (name === last ? 6 : 0);
    const unit = { producer: "copy", copies: "copy" }[name] ?? name;
    row.share = UNITS.includes(unit) ? busy(log, unit, view) : null;
    return row;
  });
  return { rows, height: y };
}
export const scale = (view, W) => (clock) => LEFT + ((W - LEFT - RIGHT) * (clock - view[0])) / (view[1] - view[0]);
export const clockAt = (view, W, px) => view[0] + ((px - LEFT) / (W - LEFT - RIGHT)) * (view[1] - view[0]);

export function ticks([from, to], W) {
  const rough = (to - from) / Math.max(3, (W - LEFT - RIGHT) / 90), size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((m) => m * size >= rough) * size, found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}

// `id` makes the hatching's names unique in the page. `last`: with the axis below.
export function drawStep(log, view, W, { id, s, last, first }) {
  const { rows, height } = layout(log, view), x = scale(view, W), end = Math.min(view[1], log.end), parts = [];
  let lane = "";
  const box = (cls, e, y, h, text) => {
    const left = Math.max(LEFT, x(e.start)), right = Math.min(W - RIGHT, x(e.end)), w = Math.max(0.7, right - left);
    const shown = text.find((words) => words && w >= textWidth(words) + 5);
    parts.push(`<rect class="${cls}" data-lane="${lane}" data-i="${e.i}" x="${left.toFixed(1)}" y="${y}" width="${w.toFixed(1)}" height="${h}"/>`);
    const drawn = cls.split(" ").find((name) => PATTERN[name]), pattern = PATTERN[drawn];
    if (pattern && w > 2) parts.push(`<rect class="over" fill="url(#${id}${pattern})" x="${left.toFixed(1)}" y="${y}" width="${w.toFixed(1)}" height="${h}"/>`);
    if (shown) parts.push(`<text class="in ${pattern ? `halo ${drawn}` : ""}" x="${((left + right) / 2).toFixed(1)}" y="${y + h / 2 + 4}">${safe(shown)}</text>`);
  };
  for (const at of ticks(view, W)) parts.push(`<line class="grid" x1="${x(at).toFixed(1)}" x2="${x(at).toFixed(1)}" y1="${TOP}" y2="${height}"/>`);
  for (const { name, stretches, y, height: h, share } of rows) {
    lane = name;
    parts.push(`<text class="lane ${name === "tensor" ? "strong" : ""}" x="0" y="${y + ROW / 2 + 4}">${safe(s.lane[name])}</text>`);
    if (name === "tensor" && end > view[0]) parts.push(`<rect class="idle" x="${LEFT}" y="${y}" width="${(x(end) - LEFT).toFixed(1)}" height="${h}"/>`);
    else parts.push(`<line class="base" x1="${LEFT}" x2="${W - RIGHT}" y1="${y + h}" y2="${y + h}"/>`);
    for (const e of stretches) {
      if (e.end <= view[0] || e.start >= view[1]) continue;
      const text = label(e), who = letter(e.who);
      if (name === "producer") box(e.unit === "wait" ? "wait" : "copy", e, e.unit === "wait" ? y + ROW : y, e.unit === "wait" ? 13 : ROW, e.unit === "wait" ? [`${s.waiting} ${text}`, text] : [text]);
      else if (name === "copies") box("copy", e, y, h, [text]);
      else if (e.unit === "wait") box("wait", e, y, h, [`${s.waiting} ${text}`, text]);
      else if (["tensor", "exp", "fp32"].includes(name)) box(kind[e.who] ?? "own", e, y, h, who ? [`${who}: ${text}`, text] : [text]);
      else box(`${kind[e.who] ?? "own"} ${e.unit}`, e, y, h, [text]);
    }
    if (share !== null) parts.push(`<text class="share ${name === "tensor" ? "strong" : ""}" x="${W}" y="${y + ROW / 2 + 4}">${view[0] >= log.end ? "" : percent(share)}</text>`);
  }
  const begins = Array.from({ length: log.blocks }, (_, b) => x(log.stretches.find((e) => e.unit === "tensor" && e.block === b).start));
  const edge = W - (first ? textWidth(s.in_view) + 4 : 0);
  begins.forEach((at, b) => {
    if (at < LEFT || at > W - RIGHT) return;
    const room = Math.min(edge, b + 1 < begins.length ? begins[b + 1] : W) - at - 6;
    const shown = [put(s.block, { n: b + 1 }), String(b + 1)].find((words) => textWidth(words) <= room) ?? "";
    parts.push(`<line class="begin" x1="${at.toFixed(1)}" x2="${at.toFixed(1)}" y1="4" y2="${height}"/><text class="flag" x="${(at + 4).toFixed(1)}" y="12">${safe(shown)}</text>`);
  });
  if (log.end > view[0] && log.end < view[1]) parts.push(`<line class="end" x1="${x(log.end).toFixed(1)}" x2="${x(log.end).toFixed(1)}" y1="${TOP}" y2="${height}"/>`);
  if (first) parts.push(`<text class="share dim" x="${W}" y="12">${safe(s.in_view)}</text>`);
  if (last) {
    for (const at of ticks(view, W)) parts.push(`<text class="tick" x="${x(at).toFixed(1)}" y="${height + 13}">${count(at)}</text>`);
    parts.push(`<text class="tick axis" x="${(LEFT + W - RIGHT) / 2}" y="${height + 30}">${safe(s.axis)}</text>`);
  }
  const hatch = `<defs><pattern id="${id}w" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatch" x1="0" x2="0" y1="0" y2="6"/></pattern>
    <pattern id="${id}o" width="5" height="5" patternUnits="userSpaceOnUse"><circle class="dot" cx="1.5" cy="1.5" r="0.9"/></pattern>
    <pattern id="${id}t" width="6" height="6" patternUnits="userSpaceOnUse"><line class="bar" x1="0" x2="6" y1="3" y2="3"/></pattern></defs>`;
  const H = height + (last ? 36 : 2);
  return `<svg width="${W}" height="${H}" viewBox="0 0 ${W} ${H}" aria-hidden="true">${hatch}${parts.join("")}<rect class="chosen" hidden/><line class="clock" y1="${TOP}" y2="${height}" x1="-9" x2="-9"/></svg>`;
}
