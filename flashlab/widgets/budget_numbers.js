// What TileBudget shows, without the showing: flashlab/tile_budget.py once more, held to it by a test. Put in front
// of tile_budget.js. A `gpu` is {name, hopper, reserved, shared_per_sm, shared_per_program, registers_per_sm, max_threads_per_sm}.

const MAX_REGISTERS = 255;

export function tileBudget(gpu, { blockQ, blockK, headDim, itemsize, warps, stages, n }) {
  const width = Math.max(16, 2 ** Math.ceil(Math.log2(headDim))), threads = 32 * warps, up = Math.ceil;
  const buffers = gpu.hopper ? stages : Math.max(1, stages - 1), tile = blockK * width * itemsize;
  const shared = { q: blockQ * width * itemsize, k: tile * buffers, v: stages > 1 ? tile * buffers : 0 };
  const registers = {
    acc: up((blockQ * width) / threads), scores: up((blockQ * blockK) / threads),
    p: itemsize === 2 ? up((blockQ * blockK) / (2 * threads)) : 0,
    q: gpu.hopper ? 0 : up((blockQ * width * itemsize) / (4 * threads)), rest: gpu.rest,
  };
  const total = (o) => Object.values(o).reduce((a, b) => a + b, 0);
  const sharedBytes = total(shared), perThread = total(registers);
  const most = Math.min(MAX_REGISTERS, Math.floor(gpu.registers_per_sm / (4 * threads))), each = Math.min(perThread, most);
  const limits = {
    shared: Math.floor(gpu.shared_per_sm / (sharedBytes + gpu.reserved)),
    registers: Math.floor(gpu.registers_per_sm / (up(each / 8) * 8 * 4 * threads)),
    threads: Math.floor(gpu.max_threads_per_sm / threads),
  };
  let status = perThread > most ? "spills" : "fits";
  if (sharedBytes > gpu.shared_per_program) (status = "too big"), (limits.shared = 0);
  const binds = Object.keys(limits).reduce((a, b) => (limits[b] < limits[a] ? b : a));
  const moved = itemsize * 2 * n * headDim * (1 + up(n / blockQ)) + 4 * n;
  return { shared, registers, limits, programs: limits[binds], status, binds, moved, sharedBytes, perThread, most };
}

export const insert = (text, values) => text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);

// Bytes for people: decimal for what is moved (MB), binary for what is stored on the chip (KB = 1024 bytes, as NVIDIA counts).
export const inKB = (bytes) => String(+(bytes / 1024).toPrecision(4));
export function decimal(bytes) {
  const power = Math.max(0, Math.min(4, Math.floor(Math.log10(Math.max(1, bytes)) / 3)));
  const value = bytes / 1000 ** power;
  return `${value >= 1000 ? Math.round(value) : +value.toPrecision(3)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

// All that allow no more programs than run.
export const binders = (b, s) => Object.keys(b.limits).filter((k) => b.limits[k] === b.programs).map((k) => s["by_" + k]).join(s.and);

// The finding in one sentence.
export function budgetTitle(gpu, o, b, s) {
  const it = {
    br: o.blockQ, bc: o.blockK, d: o.headDim, gpu: gpu.name, shared: inKB(b.sharedBytes), limit: inKB(gpu.shared_per_program),
    registers: b.perThread, most: b.most, programs: b.programs, moved: decimal(b.moved), binds: binders(b, s),
  };
  const key = { "too big": "title_big", spills: "title_spills", fits: b.programs > 1 ? "title_fits" : "title_one" }[b.status];
  return insert(s[key], it);
}
