// The picture of one training step, drawn from a Trace's data and asked by pointing at it. Notebooks show it as a widget
// (anywidget calls `render`, below); the site's pages put page.js behind this file. There is nothing to build.

// Words for numbers: as memlab/units.py has them.

export function threeDigits(value) {
  const size = Math.abs(value), digits = size < 9.995 ? 2 : size < 99.95 ? 1 : 0, scaled = value * 10 ** digits;
  const even = scaled % 1 === 0.5 && Math.floor(scaled) % 2 === 0 ? Math.floor(scaled) : Math.round(scaled);
  return (even / 10 ** digits).toFixed(digits); // halves to the even side, as Python does
}

export function formatBytes(count) {
  const size = Math.abs(count);
  for (const [factor, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (size >= factor || size >= (999.5 * factor) / 1024) {
      return `${count < 0 ? "-" : ""}${threeDigits(size / factor)} ${unit}`;
    }
  }
  return `${count} B`;
}

export function formatSeconds(seconds) {
  for (const [factor, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "us"]]) {
    const value = Number((seconds / factor).toPrecision(2));
    if (value >= 1 || unit === "us") return `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ${unit}`;
  }
}

function ticks(top, most) {
  let step = 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(top, 1) / 5)));
  while (top / step > most) step *= 2;
  const marks = [];
  for (let count = 0; count <= top; count += step) marks.push(count);
  return marks;
}

const tickText = (count) => count ? formatBytes(count).replace(/^[\d.]+/, Number.parseFloat) : "0";
const largestOf = (values) => values.reduce((largest, value) => Math.max(largest, value), 0);
const NATURAL = new Intl.Collator("en", { numeric: true }); // batch 8 before batch 64
const counted = (number, noun) => `${number.toLocaleString("en-US")} ${noun}${number === 1 ? "" : "s"}`;
const escaped = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const color = (name) => `var(--memlab-${name.replaceAll(" ", "_")})`;
const CATEGORIES = [
  "parameter", "buffer", "optimizer state", "gradient", "input", "held over", "communication", "activation",
  "recomputed activation", "temporary", "workspace",
]; // in the order in which they are stacked: memlab/categories.py
const COLORS = { "recomputed activation": "recomputed", "held over": "held" };
const colorOf = (category) => color(COLORS[category] ?? category);
const UNCOUNTED = ["optimizer state", "held over", "communication", "workspace"];
const plural = (name) => name === "temporary" ? "temporaries" : UNCOUNTED.includes(name) ? name : `${name}s`;

// A step: what a trace says of each moment. Moment 0 is the start, moment m is after event m.

export class Step {
  constructor(trace) {
    const { events, storages } = trace;
    this.trace = trace;
    this.count = events.bytes.length;
    this.allocated = new Float64Array(this.count + 1);
    this.seconds = new Float64Array(this.count + 1);
    this.series = new Map();
    const start = Object.values(trace.start).reduce((sum, bytes) => sum + bytes, 0);
    const categories = events.category.map((place) => events.texts[place]);
    for (const name of CATEGORIES) {
      if (categories.includes(name) || trace.start[name]) this.series.set(name, new Float64Array(this.count + 1));
    }
    this.allocated[0] = start;
    for (const [name, values] of this.series) values[0] = trace.start[name] ?? 0;
    for (let m = 1; m <= this.count; m++) {
      for (const values of this.series.values()) values[m] = values[m - 1];
      this.series.get(categories[m - 1])[m] += events.bytes[m - 1];
      this.allocated[m] = this.allocated[m - 1] + events.bytes[m - 1];
      this.seconds[m] = events.seconds[m - 1];
    }
    this.peakAt = this.allocated.indexOf(largestOf(this.allocated));
    this.peak = this.allocated[this.peakAt];
    this.total = trace.likely_seconds ?? this.seconds[this.count];
    this.phases = [];
    events.phase.forEach((place, e) => {
      const last = this.phases.at(-1);
      if (last?.name === events.texts[place]) last.end = e + 1;
      else this.phases.push({ name: events.texts[place], begin: e, end: e + 1 });
    });
    this.lives = storages.name.map(() => ({ born: 0, freed: null }));
    const live = storages.start.slice();
    events.storage.forEach((place, e) => {
      if (place < 0) return;
      if (!live[place] && events.bytes[e] > 0) this.lives[place].born = e + 1;
      live[place] += events.bytes[e];
      this.lives[place].freed = live[place] ? null : e + 1;
    });
  }

  text(column, e) {
    return this.trace.events.texts[this.trace.events[column][e]];
  }

  atPeak() {
    return new Map([...this.series].map(([name, values]) => [name, values[this.peakAt]]));
  }

  // What is alive at a moment, the largest first: places of storages and their bytes.
  alive(moment, category) {
    const { events, storages } = this.trace;
    const bytes = storages.start.slice();
    for (let e = 0; e < moment; e++) if (events.storage[e] >= 0) bytes[events.storage[e]] += events.bytes[e];
    return bytes
      .map((count, place) => ({ place, count, category: storages.texts[storages.category[place]] }))
      .filter((one) => one.count > 0 && (!category || one.category === category))
      .sort((one, other) => other.count - one.count);
  }

  // "blocks.7.mlp.1 gelu, 8 × 1024 × 3072 float32"
  describe(place) {
    const { events, storages } = this.trace;
    const word = (column) => storages.texts[storages[column][place]];
    const { born } = this.lives[place];
    const maker = born && events.storage[born - 1] === place ? born - 1 : -1;
    const made = maker < 0 ? "" : `${this.text("module", maker)} ${this.text("op", maker).replace("aten.", "")}`.trim();
    const shape = word("shape") ? word("shape").replaceAll(" ", " × ") : "";
    return { name: word("name") || made || word("category"), shape: `${shape} ${word("dtype")}`.trim() };
  }
}

// Where moments stand from left to right, 0 to 1: by time, or by event with forward under forward and backward under
// backward. So stand a measured and a predicted step by time, too, for their seconds cannot be compared. A step that ran
// out of memory is not stretched: it ends where it ended.

function places(step, reference, byTime) {
  if (byTime && step.trace.source === reference.trace.source) {
    const longest = Math.max(step.total, reference.total) || 1;
    return step.seconds.map((seconds) => seconds / longest);
  }
  const [own, its] = [step, reference].map((one) => byTime ? one.seconds : Float64Array.from({ length: one.count + 1 }, (_, m) => m));
  const width = (byTime ? reference.total : reference.count) || 1;
  const edges = aligned(step, reference);
  let edge = 1;
  return Float64Array.from({ length: step.count + 1 }, (_, m) => {
    while (edge < edges.length - 1 && m > edges[edge][0]) edge++;
    const [first, x] = edges[edge - 1], [last, xLast] = edges[edge];
    return (its[x] + ((its[xLast] - its[x]) * (own[m] - own[first])) / (own[last] - own[first] || 1)) / width;
  });
}

function aligned(step, reference) {
  const total = step.count, width = reference.count;
  if (step === reference) return [[0, 0], [total, width]];
  let same = 0;
  while (same < Math.min(step.phases.length, reference.phases.length)
    && step.phases[same].name === reference.phases[same].name) same++;
  const inner = [];
  for (let i = 0; i < same - 1; i++) inner.push([step.phases[i].end, reference.phases[i].end]);
  if (step.trace.oom) {
    const [moment, x] = inner.at(-1) ?? [0, 0];
    return [[0, 0], ...inner, [total, Math.min(x + total - moment, width)]];
  }
  if (same < Math.max(step.phases.length, reference.phases.length)) { // such as another number of micro-batches
    const ends = [step, reference].map((one) => Math.max(0, ...one.phases.filter((p) => p.name === "backward").map((p) => p.end)));
    const whole = ends[0] > 0 && ends[0] < total && ends[1] > 0 && ends[1] < width;
    return [[0, 0], ...(whole ? [ends] : []), [total, width]];
  }
  return [[0, 0], ...inner, [total, width]];
}

// Which moments to draw: of each pixel the one with the most allocated, and the last.
function columns(step, xs, width) {
  const kept = [0];
  let pixel = 0, highest = 0;
  for (let m = 1; m <= step.count; m++) {
    const here = Math.floor(xs[m] * width);
    if (here !== pixel) {
      if (kept.at(-1) < highest) kept.push(highest);
      if (kept.at(-1) < m - 1) kept.push(m - 1);
      pixel = here;
      highest = m;
    } else if (step.allocated[m] >= step.allocated[highest]) highest = m;
  }
  if (kept.at(-1) < highest) kept.push(highest);
  if (kept.at(-1) < step.count) kept.push(step.count);
  return kept;
}

// The chart

const STRIP = 24; // pixels at the top, where the phases are named
const WHOLE = [0, 1];

class Chart {
  static drawn = 0;

  // ask(moment) is called with where somebody points, or null; redraw() when another part of the step is wanted
  constructor(ask, redraw) {
    Object.assign(this, { ask, redraw });
    this.box = element("div", { class: "memlab-chart", tabindex: 0, role: "slider", "aria-label": "moment of the step" });
    this.pinned = false;
    this.moment = null;
    this.zoomed = WHOLE; // the part of the step that is drawn
    let pressedAt = null;
    this.box.addEventListener("pointermove", (event) => { if (!this.pinned) this.point(this.at(event)); });
    this.box.addEventListener("pointerdown", (event) => { pressedAt = this.part(event); });
    this.box.addEventListener("pointerup", (event) => {
      const there = this.at(event), part = this.part(event);
      if (pressedAt !== null && Math.abs(part - pressedAt) * this.width > 20) this.zoom(...[pressedAt, part].sort((a, b) => a - b));
      else {
        this.pinned = !(this.pinned && Math.abs(this.x(there) - this.x(this.moment)) < 6);
        this.point(there);
      }
      pressedAt = null;
    });
    this.box.addEventListener("dblclick", () => this.zoom());
    this.box.addEventListener("pointerleave", () => { if (!this.pinned) this.point(null); });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("blur", () => { if (!this.box.matches(":hover")) this.leave(); });
  }

  leave() {
    this.pinned = false;
    this.point(null);
  }

  key(event) {
    if (!this.step || event.ctrlKey || event.metaKey || event.altKey) return;
    const { count, peakAt, phases } = this.step;
    const here = this.moment ?? peakAt, by = event.shiftKey ? 10 : 1;
    const edges = [0, ...phases.map((phase) => phase.end)];
    const to = {
      ArrowRight: here + by, ArrowUp: here + by, ArrowLeft: here - by, ArrowDown: here - by, Home: 0, End: count,
      PageUp: edges.find((edge) => edge > here) ?? count, PageDown: edges.findLast((edge) => edge < here) ?? 0,
      Enter: peakAt, " ": peakAt,
    }[event.key];
    const middle = this.xs[here];
    if (event.key === "Escape" && this.moment !== null) this.leave();
    else if (event.key === "+") this.zoom(middle - 0.25, middle + 0.25);
    else if (event.key === "-") this.zoom();
    else if (to === undefined) return;
    else {
      this.pinned = true;
      this.point(this.moment === null && event.key.startsWith("Arrow") ? peakAt : Math.min(Math.max(to, 0), count));
    }
    event.preventDefault();
    event.stopPropagation();
  }

  // Draw the stretch between two places of what is drawn, 0 to 1; without them the whole step.
  zoom(from, to) {
    const [first, last] = this.zoomed, inside = (x) => Math.min(Math.max(first + x * (last - first), 0), 1);
    this.zoomed = from === undefined ? WHOLE : [inside(from), inside(to)];
    this.redraw();
  }

  part(event) {
    return (event.clientX - this.box.getBoundingClientRect().left - this.left) / this.width;
  }

  x(moment) {
    return moment === null ? -1e9 : this.left + this.xs[moment] * this.width;
  }

  y(bytes) {
    return this.bottom - (bytes / this.top) * (this.bottom - STRIP);
  }

  // The moment below the pointer: of those drawn at its pixel the one with the most allocated.
  at(event) {
    if (!this.step) return null;
    const part = this.part(event);
    const near = 1.5 / this.width;
    let best = 0, distance = Infinity, highest = -1;
    for (let m = 0; m <= this.step.count; m++) {
      const away = Math.abs(this.xs[m] - part);
      if (away <= near && this.step.allocated[m] > highest) { best = m; highest = this.step.allocated[m]; }
      else if (highest < 0 && away < distance) { best = m; distance = away; }
    }
    return best;
  }

  point(moment) {
    if (!this.step) return;
    this.moment = moment;
    this.mark();
    this.ask(moment);
  }

  // Draw a step and, as an outline, another one.
  // limits: [bytes, text]; alone: the only category to draw; hidden: categories without an area; marks: names of the two.
  draw(step, other, { limits, byTime, alone, hidden, size, height, marks }) {
    Object.assign(this, { step, byTime, alone, size, height });
    if (alone) [other, limits] = [null, []];
    const reference = step.trace.oom && other && !other.trace.oom ? other : step;
    this.left = 4.9 * size;
    this.width = Math.max(this.box.clientWidth - this.left - 14, 60);
    this.bottom = height - 1.7 * size;
    const shrunk = step.trace.oom && reference === step ? 0.9 : 1; // room for what failed
    const [from, to] = this.zoomed;
    this.xsOf = new Map([step, other, reference].filter(Boolean).map((one) =>
      [one, places(one, reference, byTime).map((x) => (shrunk * x - from) / (to - from))]));
    this.xs = this.xsOf.get(step);
    const { oom } = step.trace;
    const failed = oom?.asked ? (oom.in_use || step.allocated[step.count]) + oom.asked : 0;
    const highest = Math.max(step.peak, other?.peak ?? 0, ...limits.map(([bytes]) => bytes), 1);
    const most = alone ? largestOf(step.series.get(alone)) || 1 : Math.max(highest, Math.min(failed, 1.5 * highest));
    // The axis stands still while a slider is dragged, until the picture would be too low or less than half as high.
    if (alone || !(most <= this.most && this.most < 2 * most)) this.most = most;
    this.top = this.most / (1 - (2.2 * size) / (this.bottom - STRIP));
    const phased = byTime ? step : reference; // whose phases stand below
    const id = `memlab-clip-${Chart.drawn++}`;
    const plot = [
      this.shades(phased), this.areas(alone, hidden), other ? this.outline(other, "memlab-other") : "",
      alone ? "" : this.outline(step, "memlab-line"), limits.map(([bytes]) => this.level(this.y(bytes), "memlab-limit")).join(""),
    ];
    this.box.innerHTML = `<svg class="memlab-drawing" width="100%" height="${height}" font-size="${size}" aria-hidden="true">`
      + `<clipPath id="${id}"><rect x="${this.left}" y="0" width="${this.width}" height="${height}"/></clipPath>`
      + `<g clip-path="url(#${id})">${plot.join("")}</g>${this.axis()}${this.texts(phased, other, limits, marks, alone ? 0 : failed)}</svg><svg class="memlab-cursor" width="100%" height="${height}" aria-hidden="true"></svg>`;
    this.box.setAttribute("aria-valuemax", step.count);
    this.box.setAttribute("aria-valuemin", 0);
    this.cursor = this.box.querySelector(".memlab-cursor");
    if (this.moment !== null) this.moment = Math.min(this.moment, step.count);
    this.mark();
  }

  points(kept, xs, value) {
    return kept.map((m) => `${(this.left + xs[m] * this.width).toFixed(1)},${this.y(value(m)).toFixed(1)}`);
  }

  areas(alone, hidden) {
    const kept = columns(this.step, this.xs, this.width);
    let below = new Float64Array(this.step.count + 1);
    let lower = this.points(kept, this.xs, () => 0);
    let drawn = "";
    for (const [name, values] of this.step.series) {
      if ((alone && alone !== name) || hidden.includes(name)) continue;
      const above = below.map((bytes, m) => bytes + values[m]);
      const upper = this.points(kept, this.xs, (m) => above[m]);
      drawn += `<polygon points="${[...upper, ...lower.reverse()].join(" ")}" fill="${colorOf(name)}"/>`;
      below = above;
      lower = upper.slice();
    }
    return drawn;
  }

  outline(step, kind) {
    const xs = this.xsOf.get(step);
    const points = this.points(columns(step, xs, this.width), xs, (m) => step.allocated[m]).join(" ");
    const edge = kind === "memlab-other" ? `<polyline class="memlab-edge" points="${points}"/>` : "";
    return `${edge}<polyline class="${kind}" points="${points}"/>`;
  }

  // Where a phase begins and ends, 0 to 1, as far as it can be seen.
  stretch(step, { begin, end }) {
    const xs = this.xsOf.get(step);
    return [xs[begin], xs[end]].map((x) => Math.min(Math.max(x, 0), 1));
  }

  shades(step) {
    return step.phases.filter(({ name }) => name === "forward" || name === "optimizer").map((phase) => {
      const [begin, end] = this.stretch(step, phase);
      return `<rect class="memlab-shade" x="${this.left + begin * this.width}" y="0" height="${this.bottom}" width="${(end - begin) * this.width}"/>`;
    }).join("");
  }

  axis() {
    const marks = ticks(this.top, Math.max(2, Math.floor((this.bottom - STRIP) / (2.4 * this.size))));
    const numbers = marks.map((bytes) => this.level(this.y(bytes), "memlab-grid")
      + this.write(tickText(bytes), this.left - 6, this.y(bytes) + this.size / 3, "end")).join("");
    const { trace, count, total } = this.step;
    const says = trace.source === "measured" ? "measured" : "estimated";
    const base = this.height - 4;
    const [from, to] = this.zoomed;
    const ends = this.byTime
      ? [from ? formatSeconds(from * total) : "0 s", formatSeconds(to * total)]
      : [from, to].map((part) => Math.round(part * count).toLocaleString("en-US"));
    const tried = this.byTime
      ? [`time in one step, ${says}${trace.source === "measured" ? " (slower than others: every tensor is tracked)" : ` on ${trace.device}`}`, `time in one step, ${says}`, `time, ${says}`, "time"]
      : ["events of one step: an allocation or a free each", "events of one step", "events"];
    const room = this.width - 2 * Math.max(...ends.map((text) => measured(text, this.size))) - this.size;
    const middle = tried.find((text) => measured(text, this.size) < room) ?? "";
    return numbers + this.write(ends[0], this.left, base, "start") + this.write(ends[1], this.left + this.width, base, "end")
      + this.write(middle, this.left + this.width / 2, base, "middle");
  }

  level(y, kind) {
    return `<line class="${kind}" x1="${this.left}" x2="${this.left + this.width}" y1="${y.toFixed(1)}" y2="${y.toFixed(1)}"/>`;
  }

  write(text, x, y, anchor, kind = "") {
    return `<text class="${kind}" x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}">${escaped(text)}</text>`;
  }

  // The request that did not fit, where it would have gone.
  failure(failed, taken) {
    const left = this.x(this.step.count), inUse = this.step.allocated[this.step.count];
    if (!failed || left > this.left + this.width) return "";
    const top = Math.max(this.y(failed), STRIP), width = Math.max(0.05 * this.width, 10);
    const height = Math.max(this.y(inUse) - top, 3);
    taken.push({ left, right: left + width, top, bottom: top + height });
    return `<rect class="memlab-failed" x="${left.toFixed(1)}" y="${top.toFixed(1)}" width="${width.toFixed(1)}" height="${height.toFixed(1)}"/>`;
  }

  // What stands in front of the areas: texts, each where it meets no other, the peaks, and a request that failed.
  texts(phased, other, limits, marks, failed) {
    const taken = [];
    const names = this.phaseNames(phased, taken), request = this.failure(failed, taken);
    const limitNames = limits.map(([bytes, text]) => this.put(text, this.besideLimit(this.y(bytes)), "memlab-limit-name", taken));
    for (const [bytes] of limits) {
      taken.push({ left: this.left, right: this.left + this.width, top: this.y(bytes) - 1, bottom: this.y(bytes) + 1 });
    }
    const peaks = this.alone ? [] : [[this.step, marks[0]], [other, marks[1]]].filter(([step]) => step);
    const needles = peaks.map(([step]) => ({ ...around(this.summit(step)), bottom: this.bottom }));
    return [names, request, ...limitNames, ...peaks.map(([step, name]) => this.peak(step, name, taken, needles))].join("");
  }

  // A text in the first of its places [x, y, anchor] where it meets nothing that is taken; where there is none, nowhere.
  // Where some place allows it, it does not lie across a needle.
  put(words, tried, kind, taken, needles = []) {
    const text = words.trim(), { size, left: edge } = this, right = edge + this.width;
    const width = measured(text, size, kind.includes("bold"));
    const boxes = tried.map(([x, y, anchor]) => {
      const left = Math.min(Math.max(x - { start: 0, middle: width / 2, end: width }[anchor], edge), right - width);
      return { left, right: left + width, top: y - size, bottom: y + 0.3 * size, base: y };
    });
    const meets = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
    const free = boxes.filter((box) => box.left >= edge && box.top >= 0 && box.bottom <= this.bottom && !taken.some((one) => meets(one, box)));
    const box = free.find((one) => !needles.some((needle) => meets(needle, one))) ?? free[0];
    if (!box) return "";
    taken.push(box);
    return this.write(text, box.left, box.base, "start", kind);
  }

  phaseNames(step, taken) {
    const stretches = step.phases.map((phase) => [phase, ...this.stretch(step, phase)]).filter(([, begin, end]) => end > begin);
    const named = new Set();
    return stretches.sort(([, a, b], [, c, d]) => d - c - (b - a)).map(([{ name, begin, end }, x, to]) => {
      const text = name === "other" ? this.stripName(step, begin, end) : name;
      const isThin = to - x < 0.03 && end < step.count;
      if (named.has(text) || (name === "other" && isThin)) return "";
      const made = this.put(text, [[this.left + ((x + to) / 2) * this.width, this.size + 3, "middle"]], "memlab-quiet", taken);
      if (made) named.add(text);
      return made;
    }).join("");
  }

  besideLimit(y) {
    const { size, left } = this, right = left + this.width;
    return [y - 5, y + 1.1 * size, y - 1.3 * size].flatMap((base) =>
      [[right - 4, base, "end"], [left + 4, base, "start"], [(left + right) / 2, base, "middle"]]);
  }

  // Where a step's peak is, or where memory ran out.
  summit(step) {
    const moment = step.trace.oom ? step.count : step.peakAt;
    return { x: this.left + this.xsOf.get(step)[moment] * this.width, y: this.y(step.allocated[moment]) };
  }

  // A dot at the peak, or a cross where memory ran out, and its text. The needle below the dot stands for what was alive
  // for too short a time to be drawn.
  peak(step, name, taken, needles) {
    const { oom } = step.trace, { size } = this, { x, y } = this.summit(step);
    if (x < this.left || x > this.left + this.width) return "";
    const dot = `<path class="memlab-needle" d="M${x.toFixed(1)} ${y.toFixed(1)}V${this.y(0).toFixed(1)}"/>` + (oom
      ? `<path class="memlab-cross" d="M${x - 6} ${y - 6}l12 12m0 -12l-12 12"/>`
      : `<circle class="memlab-dot${step === this.step ? "" : " memlab-hollow"}" cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="${size / 3}"/>`);
    taken.push(around({ x, y }));
    const heights = [-0.7, -1, -1.5, -2, -2.8, -3.6, 1.6, 2.4, 3.2].map((lines) => y + lines * size);
    const tried = heights.flatMap((base) => [[x, base, "middle"], [x + 10, base, "start"], [x - 10, base, "end"]]);
    tried.push([x + 12, y + size / 3, "start"], [x - 12, y + size / 3, "end"]);
    const texts = oom ? [`${name} out of memory: ${oom.asked ? formatBytes(oom.asked) : "more"} asked`, `${name} out of memory`] : [`${name} ${formatBytes(step.peak)}`];
    return dot + texts.reduce((made, text) => made || this.put(text, tried, `memlab-bold${oom ? " memlab-limit-name" : ""}`, taken, needles), "");
  }

  // The strip that is neither forward, backward nor optimizer is called what its line of train does.
  stripName(step, begin, end) {
    const lines = step.trace.events.line.slice(begin, end).map((number) => this.code?.lines[number - this.code.first] ?? "");
    if (lines.some((line) => line.includes("zero_grad"))) return "zero_grad";
    const kinds = new Set(Array.from(step.trace.events.category.slice(begin, end), (place) => step.trace.events.texts[place]));
    if (begin === 0 && kinds.has("parameter")) return "set-up"; // the first step has it
    return kinds.size === 1 && kinds.has("input") ? "inputs" : "other";
  }

  // The cursor, on a layer of its own: moving it paints nothing else anew.
  mark({ isReplay = false } = {}) {
    if (!this.cursor) return;
    const { moment, step } = this;
    this.box.setAttribute("aria-valuenow", moment ?? step.peakAt);
    if (moment === null) {
      this.cursor.innerHTML = "";
      return;
    }
    const x = this.x(moment), y = this.y(this.alone ? step.series.get(this.alone)?.[moment] ?? 0 : step.allocated[moment]);
    const [largest] = isReplay ? [] : step.alive(moment, this.alone);
    let life = "";
    if (largest) {
      const { born, freed } = step.lives[largest.place];
      const from = Math.max(this.x(born), this.left), to = Math.min(this.x(freed ?? step.count), this.left + this.width);
      life = `<rect class="memlab-life" x="${from}" y="${this.bottom + 1}" width="${Math.max(to - from, 2)}" height="5" fill="${colorOf(largest.category)}"/>`;
    }
    this.cursor.innerHTML = this.xs[moment] < 0 || this.xs[moment] > 1 ? "" : `<line x1="${x}" x2="${x}" y1="${STRIP}" y2="${this.bottom}"/><circle cx="${x}" cy="${y}" r="4"/>${life}`;
  }
}

const around = ({ x, y }) => ({ left: x - 6, right: x + 6, top: y - 6, bottom: y + 6 }); // of a dot or a cross

const ruler = globalThis.document?.createElement("canvas").getContext("2d");
const widths = new Map();
function measured(text, size, bold) {
  const key = `${bold}${text}`;
  if (!widths.has(key)) {
    if (widths.size > 500) widths.clear();
    if (ruler) ruler.font = `${bold ? "600 " : ""}100px system-ui, sans-serif`;
    widths.set(key, (ruler?.measureText(text).width ?? 60 * text.length) / 100);
  }
  return widths.get(key) * size + 4;
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const pressable = (text, tip, pressed, more = {}) => element("button", { type: "button", title: tip, onclick: pressed, ...more }, text);

// The picture with all that is said of it

export class Picture {
  // ask: called with what the kernel, or the page, is to do: ask({bring_back: row})
  constructor(root, ask = () => {}) {
    this.root = root;
    this.send = ask;
    this.byTime = true;
    this.alone = null;
    this.a = null; // the settings that were pinned
    this.rows = [];
    this.questions = [];
    this.order = "";
    this.chart = new Chart((moment) => this.asked(moment), () => this.draw());
    const part = (name, tag = "div", more = {}) => (this[name] = element(tag, { class: `memlab-${name}`, ...more }));
    const toolbar = part("toolbar");
    this.pinButton = pressable("Pin as A", "Keep these settings on the chart, to compare others with them", () => this.pin());
    this.wholeButton = pressable("Whole step", "Leave the part that is drawn large; as a double click does", () => this.chart.zoom());
    this.axisButton = pressable("by event", "What stands from left to right", () => { this.byTime = !this.byTime; this.draw(); });
    this.stopButton = pressable("Stop predicting", "Predict nothing more until a control is moved", () => this.send({ stop: true }), { hidden: true, class: "memlab-stop" });
    this.questionButton = pressable("Question", "The next guess or claim of the notebook, then its answer; the key q", () => this.nextQuestion(), { class: "memlab-next" });
    this.presentButton = pressable("Present", "As large as the window; Escape ends it", () => this.present());
    toolbar.append(this.wholeButton, this.pinButton, this.axisButton, pressable("Replay", "Go through the step once", () => this.replay()), this.questionButton, this.presentButton);
    const over = element("div", { class: "memlab-over" }, part("settings"), toolbar);
    const stage = element("div", { class: "memlab-stage" }, over, part("head"), this.chart.box, part("legend"));
    const code = part("code", "pre", { tabindex: 0, "aria-label": "the training loop" });
    const aside = part("aside");
    aside.append(part("difference"), code, part("answer"));
    root.classList.add("memlab-picture");
    root.replaceChildren(this.stopButton, element("div", { class: "memlab-main" }, stage, aside, part("run")), part("sentence", "p", { role: "status" }), part("table"), part("question", "div", { role: "status" }));
    this.watcher = new ResizeObserver(() => this.resized());
    this.watcher.observe(this.chart.box);
    this.escape = (event) => this.presentKey(event);
  }

  remove() {
    this.watcher.disconnect();
    this.leavePresent();
    clearInterval(this.replaying);
  }

  resized() {
    if (this.chart.box.clientWidth && this.chart.box.clientWidth !== this.drawnWidth) this.draw();
  }

  // What is on show has changed. shown: what memlab/lab/screen.py's View.to_plain gives, or null
  show(shown) {
    this.shown = shown;
    this.step = shown && new Step(shown.trace);
    this.predicted = shown?.outline ? new Step(shown.outline.trace) : null;
    if (this.alone && !this.step?.series.has(this.alone)) this.alone = null;
    this.draw();
  }

  showCode(code) {
    this.source = code;
    this.chart.code = code;
    this.highlight(null);
  }

  // A is only drawn beside the same model.
  get pinned() {
    return this.a?.shown.model === this.shown?.model ? this.a : null;
  }

  get other() {
    return this.pinned?.step ?? this.predicted;
  }

  draw() {
    const { step, shown } = this;
    this.root.classList.toggle("memlab-empty", !step);
    if (!step) return;
    this.drawnWidth = this.chart.box.clientWidth;
    const timed = step.total > 0 && (!this.other || this.other.total > 0);
    const presenting = this.root.closest(".memlab-present");
    this.say();
    const highest = Math.max(step.peak, this.other?.peak ?? 0);
    const limits = shown.limits.filter(([bytes]) => step.trace.oom || highest > bytes / 4);
    this.chart.draw(step, this.other, {
      limits, alone: this.alone, byTime: timed && this.byTime, hidden: shown.hidden,
      size: presenting ? Math.min(Math.max(14, innerHeight / 30), 24) : 14,
      height: presenting ? this.room() : Math.min(Math.max(200, 0.36 * innerHeight), 480),
      marks: this.pinned ? ["B", "A"] : ["", this.predicted ? "predicted" : ""],
    });
    this.axisButton.textContent = this.byTime ? "by event" : "by time";
    this.axisButton.disabled = !timed;
    this.wholeButton.hidden = this.chart.zoomed === WHOLE;
    this.pinButton.textContent = this.a ? "Unpin A" : "Pin as A";
    this.asked(this.chart.moment);
  }

  // What the window leaves for the chart: the rest of its column stays as high as it is. What stands below may wait.
  room() {
    const below = getComputedStyle(this.aside).position === "static" ? this.aside.offsetHeight : 0;
    const rest = this.root.offsetHeight - this.table.offsetHeight - this.chart.box.offsetHeight - below;
    return Math.max(150, innerHeight - this.root.getBoundingClientRect().top - rest - 16);
  }

  say() {
    const { step, shown } = this;
    const { trace } = step;
    const number = trace.oom ? "out of memory" : `${trace.is_lower_bound ? "at least " : ""}${formatBytes(step.peak)}`;
    const far = trace.sent_to_other_machines ? `, ${formatBytes(trace.sent_to_other_machines)} to other machines` : "";
    const sent = trace.sent && !trace.oom ? [`sends ${formatBytes(trace.sent)} a step${far}`] : [];
    const words = [shown.origin, ...this.limitWords(), ...sent, ...this.comparison()];
    this.settings.replaceChildren(element("b", {}, shown.heading), this.a ? `  beside A: ${this.nameOfA()}` : "");
    this.head.replaceChildren(
      element("span", { class: `memlab-number${trace.oom ? " memlab-alert" : ""}` }, number),
      element("span", { class: "memlab-facts", title: shown.facts }, words.join(" · ")),
    );
    this.legend.replaceChildren(...[...step.series.keys()].filter((name) => !shown.hidden.includes(name)).map((name) =>
      element("button", {
        type: "button", "aria-pressed": String(this.alone === name), title: `Show ${plural(name)} alone, or all again`,
        onclick: () => { this.alone = this.alone === name ? null : name; this.draw(); this.focusLegend(name); },
      }, element("i", { style: `background:${colorOf(name)}` }), plural(name))));
    this.differences();
  }

  // What is on show is about to be replaced. Where predicting that takes long, it can be stopped; a run has its button.
  showStale(stale) {
    this.root.classList.toggle("memlab-stale", stale);
    clearTimeout(this.waiting);
    this.stopButton.hidden = true;
    const runs = this.root.closest(".memlab")?.querySelector(".memlab-go")?.textContent.startsWith("Stop");
    if (stale && !runs) this.waiting = setTimeout(() => { this.stopButton.hidden = false; }, 2000);
  }

  showSentence(text) {
    if (this.sentence.textContent !== text) this.sentence.textContent = text;
  }

  // What A was set to, where it is not as B.
  nameOfA() {
    const { shown, a: { shown: there } } = this;
    const here = shown.heading.split(" · ");
    const settings = there.heading.split(" · ").filter((setting) => !here.includes(setting));
    const origin = there.origin === shown.origin ? [] : [there.origin];
    const words = [...settings, ...origin].join(", ") || "the same settings";
    return this.pinned ? words : `${words}, which is another model and not drawn`;
  }

  focusLegend(name) {
    [...this.legend.children].find((button) => button.textContent === plural(name))?.focus();
  }

  limitWords() {
    const { step, shown } = this;
    return shown.limits.map(([bytes, text, name]) => {
      const rest = bytes - step.peak, reserved = step.trace.peak_reserved;
      if (step.trace.oom) return "";
      if (rest < 0) return `${formatBytes(-rest)} over ${name}`;
      if (name === "the budget") return `${formatBytes(rest)} below the budget`;
      return `fits, ${reserved ? `${formatBytes(reserved)} reserved, ` : ""}${formatBytes(bytes - (reserved || step.peak))} to spare`;
    }).filter(Boolean);
  }

  comparison() {
    const { step, pinned: a, shown } = this;
    const seconds = shown.seconds;
    if (!a) return [
      this.predicted ? `${this.shown.outline.name} ${formatBytes(this.predicted.peak)}` : "",
      seconds ? `about ${formatSeconds(seconds)} a step` : "",
    ].filter(Boolean);
    const words = [];
    if (!step.trace.oom && !a.step.trace.oom) words.push(`${Math.round((100 * step.peak) / a.step.peak)}% of A`);
    if (seconds && a.shown.seconds && shown.trace.source === a.shown.trace.source) {
      words.push(`about ${threeDigits(seconds / a.shown.seconds)} times A's time`);
    }
    return words;
  }

  differences() {
    const { step, pinned: a } = this;
    this.root.classList.toggle("memlab-compared", Boolean(a));
    if (!a) return this.difference.replaceChildren();
    const here = step.atPeak(), there = a.step.atPeak();
    const known = CATEGORIES.filter((name) => here.get(name) || there.get(name));
    const changes = known.map((name) => [name, (here.get(name) ?? 0) - (there.get(name) ?? 0)]).filter(([, change]) => change);
    changes.sort(([, one], [, other]) => Math.abs(other) - Math.abs(one));
    const row = (text, ...head) => element("tr", {}, element("th", { scope: "row" }, ...head), element("td", {}, text));
    const rows = changes.map(([name, change]) =>
      row(`${change > 0 ? "+" : "−"}${formatBytes(Math.abs(change))}`, element("i", { style: `background:${colorOf(name)}` }), plural(name)));
    if (changes.length < known.length) rows.push(row("same", changes.length ? "all else" : "every category"));
    this.difference.replaceChildren(element("table", {}, element("caption", {}, "B against A, at their peaks"), element("tbody", {}, ...rows)));
  }

  pin() {
    this.a = this.a || !this.step ? null : { step: this.step, shown: this.shown };
    this.draw();
  }

  // What somebody pointed at

  asked(moment) {
    this.root.classList.toggle("memlab-asked", moment !== null);
    this.root.classList.toggle("memlab-asked-right", moment !== null && this.chart.xs[moment] > 0.5);
    this.highlight(moment);
    const { step } = this;
    if (!step || moment === null) {
      this.answer.replaceChildren(element("p", { class: "memlab-quiet" }, "Point at the chart, or press Tab and the arrow keys: what is alive there, and which line is at work. Drag over a part of it to see that part large."));
      return;
    }
    const alive = step.alive(moment, this.alone);
    const whole = this.alone ? step.series.get(this.alone)[moment] : step.allocated[moment];
    const title = [
      step.seconds[step.count] ? formatSeconds(step.seconds[moment]) : "",
      moment ? `${step.text("phase", moment - 1)}${step.text("module", moment - 1) ? ` of ${step.text("module", moment - 1)}` : ""}` : "start of the step",
    ].filter(Boolean).join(" · ");
    const known = alive.length ? ` in ${counted(alive.length, "tensor")}` : "";
    const rows = alive.slice(0, 5).map((one, rank) => this.tensor(one, moment, rank));
    this.answer.replaceChildren(
      element("b", {}, title),
      element("p", {}, `${this.happened(moment)}alive: ${formatBytes(whole)}${this.alone ? ` of ${plural(this.alone)}` : ""}${known}${alive.length ? ", the largest:" : ""}`),
      element("ul", {}, ...rows),
    );
    this.chart.box.setAttribute("aria-valuetext", this.answer.innerText || this.answer.textContent);
  }

  happened(moment) {
    if (!moment) return "";
    const bytes = this.step.trace.events.bytes[moment - 1];
    const by = this.step.text("op", moment - 1).replace("aten.", "");
    return bytes > 0 ? `+${formatBytes(bytes)}${by ? ` by ${by}` : ""}; ` : `${formatBytes(-bytes)} freed; `;
  }

  tensor({ place, count, category }, moment, rank) {
    const { name, shape } = this.step.describe(place);
    const { born, freed } = this.step.lives[place];
    const life = category === "workspace" ? "" : `${born === 0 ? "older than the step" : born === moment ? "born now" : `born ${moment - born} events ago in ${this.step.text("phase", born - 1)}`}, `
      + (freed === null ? this.step.trace.oom ? "alive when memory runs out" : "outlives the step" : `freed in ${counted(freed - moment, "event")}, in ${this.step.text("phase", freed - 1)}`);
    return element("li", { title: life },
      element("i", { style: `background:${colorOf(category)}` }), element("span", {}, name), element("b", {}, formatBytes(count)),
      element("small", {}, [shape, category === "workspace" ? "of libraries, and what blocks are rounded up to" : category, rank === 0 ? life : ""].filter(Boolean).join(" · ")));
  }

  highlight(moment) {
    if (!this.source) return this.code.replaceChildren();
    const number = moment ? this.step.trace.events.line[moment - 1] : 0;
    if (this.marked === number && this.code.childElementCount) return;
    this.marked = number;
    const { lines, first } = this.source;
    this.code.replaceChildren(...lines.map((line, i) => element(first + i === number ? "mark" : "span", {}, line || " ")));
    const mark = this.code.querySelector("mark");
    if (mark) this.code.scrollTop = mark.offsetTop - this.code.offsetTop - this.code.clientHeight / 2;
  }

  // Go through the step once, the cursor moving: so many times a second, for a run needs the processor, too.
  replay(seconds = 1.6, perSecond = 12) {
    clearInterval(this.replaying);
    if (!this.step || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const { chart } = this;
    const begun = performance.now();
    this.replaying = setInterval(() => {
      const part = (performance.now() - begun) / 1000 / seconds;
      if (part >= 1 || chart.pinned || !this.step) {
        clearInterval(this.replaying);
        if (!chart.pinned) chart.point(null);
        return;
      }
      const moment = chart.xs.findIndex((x) => x >= part * chart.xs[this.step.count]);
      chart.moment = moment === -1 ? null : moment;
      chart.mark({ isReplay: true });
      this.highlight(chart.moment);
    }, 1000 / perSecond);
  }

  // A run: run is what memlab/lab/progress.py gives, or null
  showRun(run) {
    if (!run) return this.run.replaceChildren();
    const last = run.losses.at(-1);
    const odd = run.losses.findIndex((loss) => loss !== null && !Number.isFinite(Number(loss)));
    const number = last === null || last === undefined ? "" : Number.isFinite(Number(last)) ? Number(last).toPrecision(3) : String(last);
    const peaks = run.peaks.filter((peak) => peak !== null);
    const settled = new Set(peaks.slice(1)).size < 2; // the first step only sets up
    this.run.replaceChildren(
      element("div", {}, element("span", { class: `memlab-loss${odd >= 0 ? " memlab-alert" : ""}` }, number),
        element("span", {}, number ? ` loss, ${run.name}` : run.name),
        odd >= 0 ? element("div", { class: "memlab-alert" }, `The loss is ${run.losses[odd]} since step ${odd}.${run.going ? " Stop, or let it go on." : ""}`) : null),
      spark([run.losses, ...run.earlier], run.count, "loss of each step"),
      element("div", {},
        run.sample ? element("pre", { class: "memlab-sample", "aria-label": "what the model says" }, run.sample) : null,
        settled ? null : spark([run.peaks.map((peak, i) => peak ?? run.peaks.slice(0, i).findLast((one) => one !== null) ?? null)], run.count, "peak of each step"),
        element("div", {}, this.peaks(run, peaks, settled))),
    );
    const button = this.root.closest(".memlab")?.querySelector(".memlab-go");
    button?.style.setProperty("--memlab-done", run.going ? run.losses.length / run.count : 0);
    if (run.xrays !== this.xrays && run.going) this.replay();
    this.xrays = run.xrays;
  }

  peaks(run, peaks, settled) {
    if (run.ranks.length) return run.ranks.map((peak, rank) => `rank ${rank}: ${formatBytes(peak)}`).join(" · ");
    if (!peaks.length) return "";
    if (!settled) return `peaks up to ${formatBytes(Math.max(...peaks))}`;
    const first = peaks.length > 1 && peaks[0] !== peaks[1] ? " but the first" : "";
    return `peak ${formatBytes(peaks.at(-1))} in every step${first}`;
  }

  // The table of runs and predictions

  showRows(rows) {
    this.rows = rows;
    if (!rows.length) return this.table.replaceChildren();
    const heads = [["", "number"], ["settings", "settings"], ["what", "what"], ["peak", "peak"], ["a step", "seconds"], ["samples/s", "rate"]];
    // The fastest first, else the least; what ran out of memory or is not known comes last.
    const value = (row) => row.failed && this.order === "peak" ? Infinity : this.order === "rate" ? -(row.rate ?? -Infinity) : row[this.order] ?? Infinity;
    const compared = (one, other) => typeof one === "string" ? NATURAL.compare(one, other) : one === other ? 0 : one - other;
    const sorted = [...rows].sort((one, other) => (this.order && compared(value(one), value(other))) || other.number - one.number);
    const head = heads.map(([text, name]) => element("th", { scope: "col", "aria-sort": this.order === name ? "ascending" : "none" },
      text ? pressable(text, `Order by ${text}`, () => { this.order = this.order === name ? "" : name; this.showRows(this.rows); }) : "run"));
    const body = sorted.map((row) => element("tr", { class: row.best ? "memlab-best" : "" },
      element("th", { scope: "row" }, pressable(`${row.number}${row.best ? " ★" : ""}`, "Bring these settings back", () => this.send({ bring_back: row.number }), { "aria-label": `bring back run ${row.number}` })),
      ...[row.settings, row.what, row.failed ? "out of memory" : formatBytes(row.peak), row.seconds ? formatSeconds(row.seconds) : "", row.rate ? Number(row.rate.toPrecision(3)).toLocaleString("en-US") : ""]
        .map((text) => element("td", {}, text))));
    this.table.replaceChildren(element("table", {}, element("caption", {}, `Runs and predictions that were kept${rows.some((row) => row.best) ? "; ★ the fastest that fits" : ""}`),
      element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body)));
  }

  // Present: as large as the window, in front of all else on the page

  present() {
    const panel = this.root.closest(".memlab");
    if (panel.classList.contains("memlab-present")) return this.leavePresent();
    panel.classList.add("memlab-present");
    this.turned = 0;
    this.send({ questions: true });
    panel.popover = "manual";
    panel.showPopover?.();
    document.addEventListener("keydown", this.escape, true);
    this.presentButton.textContent = "Leave";
    this.draw();
  }

  leavePresent() {
    const panel = this.root.closest(".memlab");
    document.removeEventListener("keydown", this.escape, true);
    if (!panel?.classList.contains("memlab-present")) return;
    panel.hidePopover?.();
    panel.removeAttribute("popover");
    panel.classList.remove("memlab-present");
    this.question.replaceChildren();
    this.presentButton.textContent = "Present";
    this.draw();
  }

  // The guesses and claims beside the panel: a kernel knows those of its notebook, a page finds its own.
  showQuestions(questions) {
    this.questions = questions;
    this.questionButton.hidden = !questions.length;
  }

  // A question, then its answer, then the next one; after the last the chart alone.
  nextQuestion() {
    const place = this.turned++, [question, answer] = this.questions[place >> 1] ?? [];
    if (!question) this.turned = 0;
    this.question.replaceChildren(...(question ? [element("p", {}, question), ...(place % 2 ? [element("p", {}, element("b", {}, answer))] : [])] : []));
  }

  // Arrow keys move the first slider where nothing else waits for them
  presentKey(event) {
    const panel = this.root.closest(".memlab");
    if (event.key === "Escape" && this.chart.pinned) this.chart.leave();
    else if (event.key === "Escape") this.leavePresent();
    else if (event.key.toLowerCase() === "q" && !event.ctrlKey && !event.metaKey && this.questions.length && !event.target.matches("input:not([type=range]), textarea, select")) this.nextQuestion();
    else if (event.key.startsWith("Arrow") && (document.activeElement === document.body || !panel.contains(document.activeElement) || document.activeElement === this.presentButton)) {
      panel.querySelector('.memlab-left [role="slider"], .memlab-left input[type="range"], .memlab-controls input')?.focus();
    } else return;
    if (event.key === "Escape") event.preventDefault();
    event.stopPropagation();
  }
}

function spark(series, count, label) {
  const width = 200, height = 56;
  const finite = (values) => values.map((value, i) => [i, value === null ? NaN : Number(value)]).filter(([, value]) => Number.isFinite(value));
  const lines = series.map(finite);
  const all = lines.flat().map(([, value]) => value);
  if (!all.length) return null;
  const low = Math.min(...all), high = Math.max(...all), reach = high - low || 1;
  const longest = Math.max(count, ...series.map((one) => one.length)) - 1 || 1;
  const point = ([i, value]) => `${(4 + (i / longest) * (width - 8)).toFixed(1)},${(height - 6 - ((value - low) / reach) * (height - 12)).toFixed(1)}`;
  const [now, ...earlier] = lines;
  const drawn = earlier.filter((line) => line.length).map((line) => `<polyline class="memlab-earlier" points="${line.map(point).join(" ")}"/>`).join("");
  const dot = now.length ? `<circle class="memlab-now" cx="${point(now.at(-1)).split(",")[0]}" cy="${point(now.at(-1)).split(",")[1]}" r="4"/>` : "";
  const made = element("div", { class: "memlab-spark", role: "img", "aria-label": label });
  made.innerHTML = `<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" aria-hidden="true">${drawn}<polyline class="memlab-now" points="${now.map(point).join(" ")}"/>${dot}</svg>`;
  return made;
}

// The widget of a notebook: memlab/lab/picture.py has its other half.

const AS_TEXT = new Set(["shown", "code", "run", "rows", "questions"]);

function render({ model, el }) {
  const picture = new Picture(el, (wish) => model.send(wish));
  const parts = { shown: "show", code: "showCode", run: "showRun", rows: "showRows", questions: "showQuestions", sentence: "showSentence", stale: "showStale" };
  for (const [name, shows] of Object.entries(parts)) {
    const changed = () => picture[shows](AS_TEXT.has(name) ? JSON.parse(model.get(name)) : model.get(name));
    model.on(`change:${name}`, changed);
    changed();
  }
  model.set("is_alive", true);
  model.save_changes();
  return () => picture.remove();
}

export default { render };
