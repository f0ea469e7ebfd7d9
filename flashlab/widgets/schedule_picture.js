// The whole picture of BlockSchedule, painted once for a choice. Put in front of block_schedule.js.

// On context `g`, W pixels wide: a row of h pixels for each SM from x = left on, its programs, the axes. `x` and `clock`
// turn tile steps into pixels and words; `top` is the most work of a program.
export function paintSchedule(g, a, { W, h, left, top, x, clock, colours, font, s }) {
  const [idle, line, text, page, low, high, low2, high2] = colours, bodyH = h * a.sms.length;
  const slot = h / a.perSm, gap = slot > 4 ? 1 : slot > 2 ? 0.5 : 0;
  g.fillStyle = idle;
  g.fillRect(left, 0, W - left - 2, bodyH);
  // One path for each shade: the fill style is changed 16 times, not 100,000 times.
  const shades = Array.from({ length: 16 }, () => []);
  for (const q of a.programs) shades[(a.items.head[q.item] % 2) * 8 + Math.min(7, Math.floor((8 * a.items.work[q.item]) / (top * 1.0001)))].push(q);
  const mix = (from, to, t) => `color-mix(in srgb, ${to} ${Math.round(100 * t)}%, ${from})`;
  shades.forEach((list, i) => {
    g.fillStyle = mix(i < 8 ? low : low2, i < 8 ? high : high2, (i % 8) / 7);
    for (const q of list) {
      const from = x(q.start), wide = x(q.end) - from;
      g.fillRect(from, h * q.sm + slot * q.slot + gap / 2, wide > 3 ? wide - 1 : wide > 1 ? wide - 0.4 : Math.max(wide, 0.3), slot - gap);
    }
  });
  g.fillStyle = text;
  g.font = `12px ${font}`;
  g.textBaseline = "middle";
  g.textAlign = "right";
  const every = Math.ceil(16 / h), rows = a.sms.length, mark = [1, 2, 5, 10, 20, 50, 100].find((n) => n * h >= 32) ?? 100;
  for (let m = 0; m < rows; m += Math.max(mark, every)) g.fillText(m === 0 ? `${s.sm} 0` : m, left - 6, h * m + Math.max(6, h / 2));
  g.textBaseline = "alphabetic";
  for (let i = 0; i <= 4; i++) {
    g.textAlign = i === 0 ? "left" : i === 4 ? "right" : "center";
    const t = (a.makespan * i) / 4;
    g.fillStyle = line;
    g.fillRect(x(t) - (i === 4 ? 1 : 0), bodyH, 1, 5);
    g.fillStyle = text;
    g.fillText(clock(t), x(t), bodyH + 18);
  }
  const none = rows - a.used; // SMs without a program are the last ones
  if (none * h > 22) plate(g, put(s.no_program, { n: none }), left + (W - left) / 2, h * a.used + (none * h) / 2, text, page, font);
}

function plate(g, words, cx, cy, text, page, font) {
  g.font = `650 15px ${font}`;
  const w = g.measureText(words).width;
  g.fillStyle = page;
  g.fillRect(cx - w / 2 - 10, cy - 13, w + 20, 26);
  Object.assign(g, { fillStyle: text, textAlign: "center", textBaseline: "middle" });
  g.fillText(words, cx, cy);
}
