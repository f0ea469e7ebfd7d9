// The picture of MemoryMap: two curves over N with the GPU's memory as a line, two bars at the chosen N. Behind
// quantities.js, panel.js and memory_numbers.js.

let hatches = 0;
const BOTH = ["standard", "fa"], LOW_N = 128, HIGH_N = 2 ** 20;

function curves(state, card, s, W, ends) {
  const H = 300, L = 62, R = 14, T = 14, B = 40, o = state;
  const grow = (algorithm, n) => total(needs(at(state, n), algorithm, o));
  const lowN = Math.min(LOW_N, state.Nk), highN = Math.max(HIGH_N, state.Nk);
  const low = 10 ** Math.floor(Math.log10(grow("fa", lowN))), high = 10 ** Math.ceil(Math.log10(Math.max(grow("standard", highN), 2 * card.hbm_bytes)));
  const x = (n) => L + ((W - L - R) * Math.log(n / lowN)) / Math.log(highN / lowN), y = (b) => H - B - ((H - B - T) * Math.log(b / low)) / Math.log(high / low);
  const say = (px, py, cls, words, more = "") => `<text x="${px}" y="${py}" class="${cls}" ${more}>${esc(words)}</text>`;
  let out = "";
  const every = Math.ceil(decades(low, high).length / 7);
  for (const e of decades(low, high)) {
    out += `<path class="grid" d="M${L} ${y(10 ** e)}H${W - R}"/>`;
    if ((e - Math.log10(low)) % every < 0.5) out += say(L - 6, y(10 ** e) + 4, "dim end", bytes(10 ** e));
  }
  const ticks = lengths(lowN).filter((n) => Number.isInteger(Math.log2(n))), step = Math.ceil(ticks.length / Math.max(2, (W - L) / 62));
  ticks.forEach((n, i) => {
    out += `<path class="grid" d="M${x(n)} ${T}V${H - B}"/>`;
    if (i % step === 0) out += say(x(n), H - B + 17, "dim mid", tokens(n));
  });
  out += say(W - R, H - 6, "dim end", s.axis_n);
  const full = y(card.hbm_bytes), here = x(state.Nk), many = 48;
  out += `<rect class="beyond" x="${L}" y="${T}" width="${W - L - R}" height="${Math.max(0, full - T)}"/><path class="memory" d="M${L} ${full}H${W - R}"/>`;
  const points = Array.from({ length: many + 1 }, (_, i) => lowN * (highN / lowN) ** (i / many)), lines = {};
  for (const a of BOTH) {
    lines[a] = points.map((n) => [x(n), y(grow(a, n))]);
    out += `<path class="curve ${a}" d="M${lines[a].map((p) => p.map((v) => v.toFixed(1)).join(" ")).join("L")}"/>`;
  }
  out += `<path class="cursor" d="M${here} ${T}V${H - B}"/>`;
  // Names: each at the first of its places where it covers no other and no curve, else where it covers no other.
  const taken = [], clear = (b) => b[0] >= L && b[2] <= W - R && b[1] >= T && b[3] <= H - B && !taken.some((t) => b[0] < t[2] && t[0] < b[2] && b[1] < t[3] && t[1] < b[3]);
  const free = (b) => !Object.values(lines).some((line) => line.some(([px, py]) => px > b[0] && px < b[2] && py > b[1] && py < b[3])) && !(here > b[0] && here < b[2]);
  const name = (words, cls, places) => {
    const w = 8.8 * [...words].reduce((sum, c) => sum + (c.charCodeAt(0) > 0x2e80 ? 1.6 : 1), 0);
    const boxes = places.map(([px, py]) => [px, py - 14, px + w, py + 6]).concat(places.map(([px, py]) => [px - w, py - 14, px, py + 6]));
    const box = boxes.find((b) => clear(b) && free(b)) ?? boxes.find(clear);
    if (!box) return "";
    taken.push(box);
    return say(box[0], box[3] - 6, `halo ${cls}`, words);
  };
  const now = Object.fromEntries(BOTH.map((a) => [a, grow(a, state.Nk)]));
  for (const a of BOTH) {
    const py = y(now[a]), up = a === "standard", near = [5, up ? -9 : 20, up ? -26 : -9].flatMap((dy) => [[here + 10, py + dy], [here - 10, py + dy]]);
    out += `<circle class="dot ${a}" cx="${here}" cy="${py}" r="5"/>` + name(bytes(now[a]), "strong", near);
  }
  for (const a of BOTH) {
    if (!(ends[a] >= lowN && ends[a] < highN)) continue;
    const ex = x(ends[a]);
    out += `<circle class="stop ${a}" cx="${ex}" cy="${full}" r="5"/>` + name(fill(s.ends, { n: whole(ends[a]) }), "", [-8, 20, -26, 38, 56].flatMap((dy) => [[ex - 9, full + dy], [ex + 9, full + dy]]));
  }
  const beside = fill(s.gpu_line, { gpu: card.name, memory: bytes(card.hbm_bytes) });
  out += name(beside, "strong", [[L + 8, full - 7], [W - R - 130, full - 7], [L + 8, full + 18], [W - R - 130, full + 18]]);
  for (const a of BOTH) { // above the standard curve, below the other
    const along = [0.3, 0.45, 0.6, 0.2, 0.75, 0.9].map((t) => lines[a][Math.round(t * many)]);
    out += name(s[a], "strong", [8, 24].flatMap((far) => along.map(([px, py]) => (a === "standard" ? [px - 8 - 0.5 * far, py - far] : [px + 8, py + 12 + far]))));
  }
  const words = BOTH.map((a) => fill(s.bar, { name: s[a], bytes: bytes(now[a]) })).join("; ");
  return `<svg class="curves" role="img" height="${H}" width="${W}" aria-label="${esc(fill(s.curve_label, { words }))}">${out}</svg>`;
}

// One bar of all parts on a scale where `scale` bytes are as wide as the picture; a short one once more, magnified.
function stack(parts, s, W, scale, card, name, hatch) {
  const sum = total(parts), H = 26, wide = (sum / scale) * W, few = wide < W / 4, zoom = W / wide, shown = parts.filter((p) => p.bytes > 0);
  const draw = (y, per) => {
    let x = 0, out = "";
    for (const p of shown) {
      const w = p.bytes * per;
      out += `<rect class="part ${p.name} ${p.during}" x="${x.toFixed(2)}" y="${y}" width="${Math.max(w, 0.5).toFixed(2)}" height="${H}"/>`;
      if (p.during === "work") out += `<rect x="${x.toFixed(2)}" y="${y}" width="${w.toFixed(2)}" height="${H}" fill="url(#${hatch})"/>`;
      const label = s.tensors[p.name];
      if (w > 8 * label.length + 18) out += `<text class="on" x="${x + 7}" y="${y + 18}">${esc(label)}</text>`;
      x += w;
    }
    return out;
  };
  const mark = (card.hbm_bytes / scale) * W, label = `${fill(s.bar, { name, bytes: bytes(sum) })}`;
  let out = draw(4, W / scale), height = H + 8;
  if (mark <= W) out += `<path class="memory" d="M${mark} 0V${H + 8}"/>`;
  if (mark <= W && (few ? mark > wide + 8 : false)) out += `<text class="halo" x="${mark + (mark > W - 150 ? -6 : 6)}" y="${22}" ${mark > W - 150 ? 'text-anchor="end"' : ""}>${esc(fill(s.gpu_line, { gpu: card.name, memory: bytes(card.hbm_bytes) }))}</text>`;
  if (few) {
    out += `<path class="lens" d="M0 ${H + 4}L0 ${H + 26}H${W}L${wide} ${H + 4}z"/>` + draw(H + 26, W / sum);
    out += `<text class="halo dim" x="${Math.min(W / 3, 220)}" y="${H + 21}">${esc(fill(s.magnified, { x: short(zoom) }))}</text>`;
    height = 2 * H + 30;
  }
  const listed = shown.map((p) => `<li><i class="${p.name} ${p.during}"></i>${esc(fill(s.part, { name: s.tensors[p.name], bytes: bytes(p.bytes) }))}</li>`).join("");
  const spoken = fill(s.bar_label, { name, bytes: bytes(sum), parts: shown.map((p) => fill(s.part, { name: s.tensors[p.name], bytes: bytes(p.bytes) })).join(", ") });
  const head = sum >= 1.05 * card.hbm_bytes ? fill(s.bar_of, { name, bytes: bytes(sum), x: short(sum / card.hbm_bytes), gpu: card.name, memory: bytes(card.hbm_bytes) }) : label;
  return `<section><p class="head">${esc(head)}</p><svg class="bar" role="img" width="${W}" height="${height}" aria-label="${esc(spoken)}">${out}</svg><ul class="parts">${listed}</ul></section>`;
}

function render({ model, el }) {
  const s = model.get("strings"), cards = model.get("gpus"), start = model.get("problem"), hatch = `flm${Date.now()}-${hatches++}`;
  const card = (state) => cards.find((c) => c.name === state.gpu);
  const dims = [...new Set([32, 64, 80, 96, 128, 192, 256, start.D])].sort((a, b) => a - b);
  const fields = [
    { kind: "tokens", label: start.square === false ? fill(s.n_keys, { nq: whole(start.Nq) }) : s.n, high: 2 ** 30, main: true },
    { kind: "radio", name: "training", label: s.mode, main: true, choices: [["true", s.training], ["false", s.inference]], set: (v) => ({ training: v === "true" }) },
    gpuField(s, cards), numberField(s, "layers", "layers", 10000), numberField(s, "B", "b", 65536), numberField(s, "Hq", "hq", 4096), numberField(s, "Hkv", "hkv", 4096),
    { kind: "select", name: "D", label: s.d, choices: dims.map((d) => [d, d]), set: (v) => ({ D: +v }) }, dtypeField(s),
    { kind: "check", name: "dropout", label: s.dropout, get: (p) => p.dropout > 0, set: (on) => ({ dropout: on ? model.get("dropout") || 0.1 : 0 }) },
  ];
  const of = (state) => Object.fromEntries(BOTH.map((a) => [a, needs(state, a, state)]));
  const endsOf = (state) => Object.fromEntries(BOTH.map((a) => [a, largest(state, a, state, card(state).hbm_bytes)]));
  function draw(state, W, box) {
    const parts = of(state), gpu = card(state), ends = endsOf(state), n = tokens(state.Nk);
    const sums = Object.fromEntries(BOTH.map((a) => [a, total(parts[a], state.training ? "kept" : undefined)]));
    if (W > 0) {
      const scale = Math.max(...BOTH.map((a) => total(parts[a]))), word = state.training ? "" : "_inference";
      box.innerHTML = curves(state, gpu, s, W, ends) + BOTH.map((a) => stack(parts[a], s, W, scale, gpu, s[a], hatch)).join("") +
        `<p class="legend"><span><i class="kept"></i>${esc(s["kept" + word])}</span><span><i class="work"></i>${esc(s["work" + word])}</span></p>
        <svg width="0" height="0" aria-hidden="true" class="defs"><defs><pattern id="${hatch}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="2.5" height="6" class="stripe"/></pattern></defs></svg>`;
    }
    const same = !state.training && sums.standard < 1.1 * sums.fa, key = state.training ? "training_title" : same ? "inference_cache" : "inference_title";
    const beyond = ends.fa >= 2 ** 40, name = (k) => (k ? whole(k) : s.nothing);
    return {
      title: fill(s[key], { n, standard: bytes(sums.standard), fa: bytes(sums.fa) }),
      more: fill(s[beyond ? "limits_more" : "limits"], { memory: bytes(gpu.hbm_bytes), gpu: gpu.name, standard: name(ends.standard), fa: beyond ? tokens(2 ** 20) : name(ends.fa) }),
    };
  }
  function table(state) {
    const parts = of(state), ends = endsOf(state), word = state.training ? "" : "_inference", rows = [];
    for (const name of Object.keys(s.tensors)) {
      const found = BOTH.map((a) => parts[a].find((p) => p.name === name && p.bytes > 0)), one = found[0] ?? found[1];
      if (one) rows.push([s.tensors[name], s[one.during + word], ...found.map((p) => (p ? bytes(p.bytes) : "–"))]);
    }
    const line = (cells, cls = "") => `<tr class="${cls}"><th scope="row">${esc(cells[0])}</th>${cells.slice(1).map((c) => `<td>${esc(c)}</td>`).join("")}</tr>`;
    const foot = line([s.t_total, "", ...BOTH.map((a) => bytes(total(parts[a])))], "total") + line([fill(s.t_end, { gpu: state.gpu }), "", ...BOTH.map((a) => whole(ends[a]))], "total");
    return `<table><caption>${esc(fill(s.caption, { n: whole(state.Nk) }))}</caption><thead><tr>${[s.t_tensor, s.t_when, s.standard, s.fa].map((h) => `<th scope="col">${esc(h)}</th>`).join("")}</tr></thead><tbody>${rows.map((r) => line(r)).join("")}${foot}</tbody></table>`;
  }
  return panel({ model, el, kind: "fl-memory-map", traits: ["gpu", "layers", "dropout", "training"], fields, draw, table, check: headsFit(s) });
}

export default { render };
