// The picture of Roofline: roofs, one point an algorithm on them, measurements below. Behind quantities.js, panel.js,
// flows_numbers.js and roofline_numbers.js.

const SHAPE = { // never colour alone
  standard: (x, y) => `M${x - 7} ${y - 7}h14v14h-14z`, fa1: (x, y) => `M${x} ${y - 9}L${x + 9} ${y + 7}H${x - 9}z`,
  fa2: (x, y) => `M${x - 7} ${y}a7 7 0 1 0 14 0a7 7 0 1 0 -14 0z`, decode: (x, y) => `M${x} ${y - 9}L${x + 9} ${y}L${x} ${y + 9}L${x - 9} ${y}z`,
};
const put = (x, y, cls, words) => `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" class="${cls}">${esc(words)}</text>`;
// Rows for labels of known width, so that none overlaps: lowest free row, in the order of x.
function rowsFor(labels, left, right) {
  const ends = [];
  return labels.map((l) => {
    const start = Math.max(left, Math.min(l.x - l.w / 2, right - l.w)), row = ends.findIndex((e) => e < start - 12), at = row < 0 ? ends.length : row;
    ends[at] = start + l.w;
    return { ...l, start, row: at };
  });
}
const width = (words) => [...words].reduce((sum, c) => sum + (c.charCodeAt(0) > 0x2e80 ? 13 : 7.3), 0);

function chart(state, card, found, over, s, W) {
  const peak = card.peak[state.dtype], bend = ridge(state, card), exp = expRoof(found, card), H = 430, L = 66, R = 16, B = 44;
  const all = [...found, ...over], xs = all.map((p) => p.intensity), ys = all.map((p) => p.rate);
  const lowX = Math.min(...xs, bend / 8) * 0.4, highX = Math.max(...xs, bend * 2) * 2.5, top = Math.max(peak, Math.min(exp, 4 * peak)) * 1.3;
  const lowY = Math.min(...ys, card.hbm_bandwidth * lowX * 2) * 0.6;
  const labels = found.map((p) => ({ p, words: fill(s.point, { name: s.algorithms[p.name], x: short(p.intensity), time: seconds(p.seconds) }) }));
  const x = (v) => L + ((W - L - R) * Math.log(v / lowX)) / Math.log(highX / lowX);
  const placed = rowsFor(labels.map((l) => ({ ...l, x: x(l.p.intensity), w: width(l.words) })).sort((a, b) => a.x - b.x), L, W - R);
  const rows = Math.max(...placed.map((l) => l.row)) + 1, T = 12 + 21 * rows, y = (v) => H - B - ((H - B - T) * Math.log(v / lowY)) / Math.log(top / lowY);
  let out = "";
  for (const e of decades(lowX, highX)) out += `<path class="grid" d="M${x(10 ** e)} ${T}V${H - B}"/>` + put(x(10 ** e), H - B + 17, "dim mid", e < 0 ? String(10 ** e) : whole(10 ** e));
  for (const e of decades(lowY, top)) out += `<path class="grid" d="M${L} ${y(10 ** e)}H${W - R}"/>` + put(L - 6, y(10 ** e) + 4, "dim end", si(10 ** e, ""));
  out += put(W - R, H - 8, "dim end", s[`axis_${state.level}`]) + put(4, T - 4, "dim", s.axis_y);
  const startX = Math.max(lowX, lowY / card.hbm_bandwidth);
  for (const l of placed) out += `<path class="lead" d="M${l.x} ${14 + 21 * (rows - 1 - l.row) + 5}V${y(l.p.rate) - 9}"/>`;
  out += `<path class="roof" d="M${x(startX)} ${y(startX * card.hbm_bandwidth)}L${x(bend)} ${y(peak)}H${W - R}"/><path class="bend" d="M${x(bend)} ${y(peak)}V${H - B}"/>`;
  out += put(x(bend) + 5, H - B - 8, "halo", fill(s.ridge, { x: short(bend, 3) }));
  out += put(W - R - 4, y(peak) - 8, "halo end strong", fill(s.roof_compute, { dtype: state.dtype, rate: flops(peak) }));
  const mid = startX ** 0.66 * bend ** 0.34, slope = (Math.atan2(y(peak) - y(startX * card.hbm_bandwidth), x(bend) - x(startX)) * 180) / Math.PI, mx = x(mid), my = y(mid * card.hbm_bandwidth);
  out += `<text class="halo mid strong" transform="translate(${mx} ${my}) rotate(${slope})" y="18">${esc(fill(s.roof_memory, { rate: si(card.hbm_bandwidth, "B/s") }))}</text>`;
  if (exp < top) {
    const above = exp >= peak || Math.abs(y(exp) - y(peak)) > 40, dy = exp < peak ? 17 : -6;
    out += `<path class="exp" d="M${x(Math.max(startX, exp / card.hbm_bandwidth / 4))} ${y(exp)}H${W - R}"/>` + put(W - R - 4, y(exp) + (above || exp < peak ? dy : -6), "halo end dim", fill(s.roof_exp, { rate: flops(exp) }));
  }
  for (const m of over) out += `<circle class="measured ${m.nearest ? "near" : "far"}" cx="${x(m.intensity).toFixed(1)}" cy="${y(m.rate).toFixed(1)}" r="${m.nearest ? 6 : 2.5}"/>`;
  for (const group of Object.values(Object.groupBy(over.filter((m) => m.nearest), (m) => Math.round(x(m.intensity))))) {
    group.sort((a, b) => b.rate - a.rate); // named below the lowest, in the same order; without room there, beside
    const px = x(group[0].intensity), low = y(group.at(-1).rate), room = low + 24 + 16 * group.length <= H - B, left = px - L > W - R - px;
    const beside = group.reduce((all, m) => [...all, Math.max(y(m.rate) + 4, (all.at(-1) ?? 0) + 16)], []), up = Math.max(0, beside.at(-1) - (H - B - 4));
    group.forEach((m, i) => {
      const words = fill(s.measured_at, { peer: m.peer, rate: flops(m.rate) }), half = width(words) / 2, cx = Math.max(L + half, Math.min(W - R - half, px));
      out += room ? put(cx, low + 22 + 16 * i, "halo mid", words) : put(px + (left ? -11 : 11), beside[i] - up, left ? "halo end" : "halo", `${m.peer} ${flops(m.rate)}`);
    });
  }
  for (const l of placed) {
    out += `<path class="point ${l.p.name}" d="${SHAPE[l.p.name](l.x, y(l.p.rate))}"/>` + put(l.start, 14 + 21 * (rows - 1 - l.row), "halo strong", l.words);
  }
  const words = found.map((p) => fill(s.point_label, { name: s.algorithms[p.name], x: short(p.intensity), time: seconds(p.seconds), bound: s[p.bound] })).join("; ");
  return `<svg class="chart" role="img" width="${W}" height="${H}" aria-label="${esc(fill(s.chart_label, { gpu: card.name, words }))}">${out}</svg>`;
}

function render({ model, el }) {
  const s = model.get("strings"), cards = model.get("gpus"), start = model.get("problem"), records = model.get("measured");
  const card = (state) => cards.find((c) => c.name === state.gpu), several = (all) => [...new Set(all)].sort((a, b) => a - b).map((v) => [v, v]);
  const picked = (name, label, all) => ({ kind: "select", name, label, choices: several([...all, start[name]]), set: (v) => ({ [name]: +v }) });
  const fields = [
    { kind: "tokens", label: start.square === false ? fill(s.n_keys, { nq: whole(start.Nq) }) : s.n, high: 2 ** 22, main: true },
    { kind: "radio", name: "direction", label: s.way, main: true, choices: [["forward", s.forward], ["backward", s.backward]] },
    gpuField(s, cards),
    { kind: "radio", name: "level", label: s.level, named: true, main: true, choices: [["hbm", s.count_hbm], ["sm", s.count_sm]] },
    numberField(s, "B", "b", 65536), numberField(s, "Hq", "hq", 4096), numberField(s, "Hkv", "hkv", 4096), picked("D", s.d, [32, 64, 80, 96, 128, 192, 256]), dtypeField(s),
    picked("block_q", s.block_q, [16, 32, 64, 128, 256]), picked("block_k", s.block_k, [16, 32, 64, 128, 256]),
    { kind: "check", name: "causal", label: s.causal, get: (p) => Boolean(p.causal), set: (on) => ({ causal: on ? start.causal || true : false }) },
  ];
  const heads = headsFit(s), noPeak = (p) => p.gpu && !card(p).peak[p.dtype] && fill(s.no_peak, { gpu: p.gpu, dtype: p.dtype, known: Object.keys(card(p).peak).join(", ") });
  const all = (state) => [points(state, state.direction, state.level, card(state)), laidOver(state, state.direction, state.level, card(state), records)];
  function draw(state, W, box) {
    const gpu = card(state), none = noPeak(state);
    if (none) return ((box.innerHTML = ""), { title: none });
    const [found, over] = all(state), near = over.filter((m) => m.nearest), by = Object.fromEntries(found.map((p) => [p.name, p]));
    const mask = s[state.causal ? "mask_causal" : "mask_full"];
    const note = near.length
      ? fill(s.measured_note, { ...sources(near), n: [...new Set(near.map((m) => whole(m.N)))].join(", ") })
      : fill(s.measured_none, { gpu: gpu.name, dtype: state.dtype, d: state.D, mask, direction: s[state.direction] });
    if (W > 0) box.innerHTML = chart(state, gpu, found, over, s, W) + `<p class="note">${esc(note)}</p>`;
    const at = Object.fromEntries(found.map((p) => [p.name, seconds(p.seconds)]));
    return {
      title: fill(s[by.fa2.bound === "memory" ? "title_fa2_memory" : "title"], { bound: s[by.standard.bound], x: short(by.standard.intensity), gpu: gpu.name, ridge: short(ridge(state, gpu), 3), fa2: short(by.fa2.intensity) }),
      more: fill(s.times, at) + (by.decode ? " " + fill(s.decode_time, { ...at, x: short(by.decode.intensity) }) : ""),
    };
  }
  function table(state) {
    if (noPeak(state)) return "";
    const [found, over] = all(state), gpu = card(state), line = (cells) => `<tr><th scope="row">${esc(cells[0])}</th>${cells.slice(1).map((c) => `<td>${esc(c)}</td>`).join("")}</tr>`;
    const grid = (caption, heads, rows) => `<table><caption>${esc(caption)}</caption><thead><tr>${heads.map((h) => `<th scope="col">${esc(s[h])}</th>`).join("")}</tr></thead><tbody>${rows.map(line).join("")}</tbody></table>`;
    const model = found.map((p) => [s.algorithms[p.name], si(p.flops, ""), bytes(p.bytes), short(p.intensity, 3), s[p.bound], seconds(p.seconds), si(p.rate, "")]);
    const caption = fill(s.caption, { direction: s[state.direction], n: whole(state.Nk), gpu: gpu.name, ridge: short(ridge(state, gpu), 3) });
    const near = over.filter((m) => m.nearest), taken = near.map((m) => [m.peer, whole(m.N), short(m.intensity, 3), si(m.rate, "")]);
    return grid(caption, ["t_name", "t_flops", "t_bytes", "t_intensity", "t_bound", "t_time", "t_rate"], model) +
      (near.length ? grid(fill(s.caption_measured, sources(near)), ["t_peer", "t_n", "t_intensity", "t_rate"], taken) : "");
  }
  return panel({ model, el, kind: "fl-roofline", traits: ["gpu", "direction", "level"], fields, draw, table, check: heads });
}

export default { render };
