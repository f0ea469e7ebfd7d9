// The picture of TileBudget; the numbers come from budget_numbers.js, which is put in front of this file.

const esc = (s) => String(s).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const option = (value, text, now) => `<option value="${esc(value)}" ${String(value) === String(now) ? "selected" : ""}>${esc(text)}</option>`;
const TRAITS = { gpu: "gpu", blockQ: "block_q", blockK: "block_k", headDim: "head_dim", itemsize: "itemsize", warps: "warps", stages: "stages", n: "n" };

// A bar of parts against a limit: [name, amount, class]; the scale ends at what is larger.
function bar(parts, limit, unit, s) {
  const total = parts.reduce((sum, p) => sum + p[1], 0), scale = Math.max(limit, total) * 1.02, over = total > limit;
  const pieces = parts.map(([, x, cls]) => `<i class="${cls}" style="width:${(100 * x) / scale}%"></i>`).join("");
  const names = parts.map(([name, x, cls]) => `<span><i class="${cls}"></i>${esc(name)} <b>${unit(x)}</b></span>`).join("");
  return `<div class="track ${over ? "over" : ""}" aria-hidden="true">${pieces}<em style="left:${(100 * limit) / scale}%"></em></div><div class="parts">${names}</div>`;
}

function render({ model, el }) {
  const s = model.get("strings"), root = document.createElement("div");
  Object.assign(root, { className: "fl-widget fl-budget", role: "group", ariaLabel: s.name });
  root.dataset.lmSuppressShortcuts = "true";
  el.append(root);
  if (model.get("error")) {
    root.innerHTML = `<p class="title sentence">${esc(model.get("error"))}</p>`;
    return () => root.remove();
  }
  const gpus = model.get("gpus"), shipped = model.get("shipped"), blocks = model.get("blocks"), lengths = model.get("lengths");
  const o = Object.fromEntries(Object.entries(TRAITS).map(([js, py]) => [js, model.get(py)]));
  let table = false, own = false;
  root.innerHTML = `<output class="title" aria-live="polite"></output>
    <div class="choices">
      <label>${esc(s.gpu)} <select name="gpu">${gpus.map((g) => option(g.name, g.name, o.gpu)).join("")}</select></label>
      <label>${esc(s.dim)} <select name="headDim">${model.get("dims").map((d) => option(d, d, o.headDim)).join("")}</select></label>
      <label>${esc(s.dtype)} <select name="itemsize">${[2, 4].map((b) => option(b, s["dtype_" + b], o.itemsize)).join("")}</select></label>
      <label>${esc(s.warps)} <select name="warps">${[...new Set([4, 8, o.warps])].map((w) => option(w, w, o.warps)).join("")}</select></label>
      <label>${esc(s.stages)} <input type="range" name="stages" min="1" max="${Math.max(4, o.stages)}" step="1"><span class="at" data-of="stages"></span></label>
      <label>${esc(s.n)} <input type="range" name="n" min="0" max="${lengths.length - 1}" step="1"><span class="at wide" data-of="n"></span></label>
    </div>
    <div class="ships"></div>
    <div class="picture"><div class="left"><table class="grid" aria-label="${esc(s.grid)}"></table>
      <div class="legend"><span><i class="fits p2">2</i>${esc(s.key_fits)}</span><span><i class="spills"></i>${esc(s.key_spills)}</span>
        <span><i class="big"></i>${esc(s.key_big)}</span><span><b>★</b> ${esc(s.key_shipped)}</span></div></div>
      <div class="bars"></div></div>
    <div class="table" hidden tabindex="0" role="region" aria-label="${esc(s.name)}"></div>
    <p class="trap"></p>
    <div class="foot"><button type="button" data-do="table"></button><span>${esc(s.keys_help)}</span><span>${esc(s.model)}</span></div>`;
  const $ = (q) => root.querySelector(q), $$ = (q) => [...root.querySelectorAll(q)];
  const gpu = () => gpus.find((g) => g.name === o.gpu), ships = () => shipped[`${o.gpu} ${o.itemsize} ${o.headDim}`] ?? [];
  const of = (blockQ, blockK) => tileBudget(gpu(), { ...o, blockQ, blockK });
  const verdict = (b) => (b.status === "fits" ? insert(s.fits, b) : b.status === "spills" ? s.spills : s.too_big);
  const starred = () => { // "Br Bc" -> what to say: ★ with these warps and stages, ☆ with others
    const all = new Map();
    for (const [, r, c, warps, stages] of ships()) {
      if (warps === o.warps && stages === o.stages) all.set(`${r} ${c}`, `★ ${s.shipped}`);
      else if (!all.get(`${r} ${c}`)?.startsWith("★")) all.set(`${r} ${c}`, `☆ ${insert(stages === 1 ? s.shipped_one : s.shipped_with, { warps, stages })}`);
    }
    return all;
  };
  const kind = (b) => (b.status === "fits" ? `fits p${Math.min(4, b.programs)}` : b.status === "spills" ? "spills" : "big");

  // The grid is made once for a set of blocks; a choice changes only its words and classes.
  $(".grid").innerHTML = `<thead><tr><td></td><th scope="colgroup" colspan="${blocks.length}">${esc(s.axis_k)}</th><th scope="col" rowspan="2" class="move">${esc(s.moved)}<small>${esc(s.moved_by)}</small></th></tr>
    <tr><th scope="col" class="corner">${esc(s.axis_q)}</th>${blocks.map((c) => `<th scope="col">${c}</th>`).join("")}</tr></thead>
    <tbody>${blocks.map((r) => `<tr><th scope="row">${r}</th>${blocks.map((c) => `<td><button type="button" data-r="${r}" data-c="${c}"></button></td>`).join("")}<td class="move"><i></i><span></span></td></tr>`).join("")}</tbody>`;
  function drawGrid() {
    const stars = starred(), most = of(blocks[0], blocks[0]).moved;
    for (const cell of $$(".grid button")) {
      const [r, c] = [+cell.dataset.r, +cell.dataset.c], b = of(r, c), now = r === o.blockQ && c === o.blockK, star = stars.get(`${r} ${c}`);
      cell.className = kind(b);
      cell.setAttribute("aria-pressed", now);
      cell.tabIndex = now ? 0 : -1;
      cell.setAttribute("aria-label", insert(s.cell, { br: r, bc: c, verdict: verdict(b) }) + (star ? ` ${star}` : ""));
      cell.innerHTML = `<span>${b.status === "fits" ? b.programs : esc(verdict(b))}</span>${star ? `<b>${star[0]}</b>` : ""}`;
    }
    $$(".grid tbody tr").forEach((row, i) => {
      const moved = of(blocks[i], blocks[0]).moved, place = row.querySelector(".move");
      row.classList.toggle("now", blocks[i] === o.blockQ);
      place.firstChild.style.width = `${Math.max(2, (56 * moved) / most)}px`;
      place.lastChild.textContent = decimal(moved);
    });
  }
  function drawBars(b) {
    const g = gpu(), kb = (x) => `${inKB(x)} KB`, buffers = g.hopper ? o.stages : Math.max(1, o.stages - 1);
    const shared = [[s.part_q, b.shared.q, "c-q"], [b.shared.v ? insert(s.part_k, { n: buffers }) : s.part_kv, b.shared.k, "c-k"]];
    if (b.shared.v) shared.push([insert(s.part_v, { n: buffers }), b.shared.v, "c-v"]);
    const registers = [["acc", s.part_acc], ["scores", s.part_scores], ["p", s.part_p], ["q", s.part_qr], ["rest", s.part_rest]]
      .filter(([k]) => b.registers[k]).map(([k, name]) => [name, b.registers[k], "c-" + k]);
    const limits = Object.entries(b.limits).map(([k, n]) => `<li class="${n === b.programs ? "binds" : ""}">${esc(insert(s.allow, { what: s["by_" + k], n }))}${n === b.programs ? ` <b>← ${esc(s.binds)}</b>` : ""}</li>`).join("");
    $(".bars").innerHTML = `
      <div class="head">${esc(s.shared)} <b>${esc(insert(s.kb_of, { x: inKB(b.sharedBytes), limit: inKB(g.shared_per_program) }))}</b></div>${bar(shared, g.shared_per_program, kb, s)}
      <div class="head">${esc(s.registers)} <b>${esc(insert(s.of, { x: b.perThread, limit: b.most }))}</b></div>${bar(registers, b.most, String, s)}
      <div class="head">${esc(s.occupancy)} <b>${b.programs}</b></div>
      <div class="sm ${b.programs ? "" : "none"}" aria-hidden="true">${"<i></i>".repeat(Math.min(16, b.programs))}</div>
      <ul>${b.status === "too big" ? `<li class="binds">${esc(s.never)}</li>` : limits}</ul>`;
  }
  function drawTable() {
    const heads = ["br", "bc", "verdict", "shared", "registers", "programs", "binds", "moved"], stars = starred();
    const rows = blocks.flatMap((r) => blocks.map((c) => {
      const b = of(r, c), cells = [c, verdict(b) + (stars.has(`${r} ${c}`) ? ` ${stars.get(`${r} ${c}`)[0]}` : ""), inKB(b.sharedBytes), b.perThread, b.programs, binders(b, s), decimal(b.moved)];
      return `<tr ${r === o.blockQ && c === o.blockK ? 'aria-current="true"' : ""}><th scope="row">${r}</th>${cells.map((x) => `<td>${esc(x)}</td>`).join("")}</tr>`;
    }));
    $(".table").innerHTML = `<table><caption>${esc(s.grid)}</caption><thead><tr>${heads.map((h) => `<th scope="col">${esc(s["t_" + h])}</th>`).join("")}</tr></thead><tbody>${rows.join("")}</tbody></table>`;
  }
  function draw() {
    const g = gpu(), b = of(o.blockQ, o.blockK), list = ships();
    $(".title").textContent = budgetTitle(g, o, b, s);
    $("[name=stages]").value = o.stages;
    $("[name=n]").value = lengths.indexOf(o.n);
    $("[data-of=stages]").textContent = o.stages;
    $("[data-of=n]").textContent = o.n.toLocaleString("en");
    $("[name=n]").setAttribute("aria-valuetext", insert(s.rows, { n: o.n }));
    for (const name of ["gpu", "headDim", "itemsize", "warps"]) $(`[name=${name}]`).value = o[name];
    $(".ships").innerHTML = list.length ? `<span>★ ${esc(s.ships)}</span>` + list.map(([name, br, bc, warps, stages], i) => {
      const now = o.blockQ === br && o.blockK === bc && o.warps === warps && o.stages === stages;
      return `<button type="button" data-ship="${i}" aria-pressed="${now}">${esc(insert(stages === 1 ? s.ship_one : s.ship, { name: s[name], br, bc, warps, stages }))}</button>`;
    }).join("") : `<span>${esc(s.ships_none)}</span>`;
    $(".trap").textContent = insert(g.l1 ? s.trap : s.trap_less, { l1: g.l1, limit: inKB(g.shared_per_program), registers: inKB(g.registers_per_sm), shared: inKB(g.shared_per_sm) })
      + (g.tensor_memory ? " " + s.blackwell : "");
    drawGrid();
    drawBars(b);
    if (table) drawTable();
  }
  function choose(change) {
    Object.assign(o, change);
    own = true; // each `set` tells `heard`, which would see some traits new and some old
    for (const name of Object.keys(change)) model.set(TRAITS[name], o[name]);
    own = false;
    draw();
  }
  const save = () => model.save_changes();
  root.addEventListener("input", ({ target }) => {
    if (target.name === "n") choose({ n: lengths[+target.value] });
    else if (target.name) choose({ [target.name]: target.name === "gpu" ? target.value : +target.value });
  });
  root.addEventListener("change", save);
  root.addEventListener("click", ({ target }) => {
    const cell = target.closest("[data-r]"), ship = target.closest("[data-ship]");
    if (cell) (choose({ blockQ: +cell.dataset.r, blockK: +cell.dataset.c }), save());
    if (ship) {
      const [, blockQ, blockK, warps, stages] = ships()[+ship.dataset.ship], at = ship.dataset.ship;
      if (![...$("[name=warps]").options].some((w) => +w.value === warps)) $("[name=warps]").insertAdjacentHTML("beforeend", option(warps, warps));
      (choose({ blockQ, blockK, warps, stages }), save(), $(`[data-ship="${at}"]`).focus());
    }
    if (target.closest("[data-do=table]")) {
      table = !table;
      $(".picture").hidden = table;
      $(".table").hidden = !table;
      $("[data-do=table]").textContent = table ? s.as_picture : s.as_table;
      draw();
    }
  });
  root.addEventListener("keydown", (e) => {
    const cell = e.target.closest("[data-r]"), move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
    if (!cell || !move || e.ctrlKey || e.metaKey || e.altKey) return;
    (e.preventDefault(), e.stopPropagation());
    const at = (x, by) => blocks[Math.max(0, Math.min(blocks.length - 1, blocks.indexOf(x) + by))];
    choose({ blockQ: at(o.blockQ, move[0]), blockK: at(o.blockK, move[1]) });
    (save(), $(`[data-r="${o.blockQ}"][data-c="${o.blockK}"]`).focus());
  });
  const heard = () => { // Python sets a choice
    if (own) return;
    const now = Object.fromEntries(Object.entries(TRAITS).map(([js, py]) => [js, model.get(py)]));
    if (Object.keys(now).some((k) => now[k] !== o[k]) && gpus.some((g) => g.name === now.gpu)) (Object.assign(o, now), draw());
  };
  for (const name of Object.values(TRAITS)) model.on(`change:${name}`, heard);
  $("[data-do=table]").textContent = s.as_table;
  draw();
  return () => {
    for (const name of Object.values(TRAITS)) model.off(`change:${name}`, heard);
    root.remove();
  };
}

export default { render };
