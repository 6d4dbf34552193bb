// Where moments stand from left to right, 0 to 1: by time, or by event with forward under forward and backward under
// backward. So stand a measured and a predicted step by time, too, for their seconds cannot be compared. A step that ran
// out of memory is not stretched: it ends where it ended.

function places(step, reference, byTime, longest) {
  if (byTime && step.trace.source === reference.trace.source) return step.seconds.map((seconds) => seconds / longest);
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
    const part = this.part(event), { summit } = this.step;
    if (Math.abs(this.xs[summit] - part) * this.width < 6) return summit;
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
  // reserved: whether to draw what is held from the driver, too.
  // seconds: what a measured step takes while nothing is tracked, where that is known. sameStep: other is what step would
  // have been, had it not run out of memory.
  draw(step, other, { limits, byTime, alone, hidden, reserved, size, height, marks, seconds, sameStep }) {
    Object.assign(this, { step, byTime, alone, size, height, seconds });
    if (alone) [other, limits] = [null, []];
    this.reserved = (reserved && !alone && step.reserved) || null;
    const reference = step.trace.oom && other && !other.trace.oom ? other : step;
    this.left = 4.9 * size;
    this.width = Math.max(this.box.clientWidth - this.left - 14, 60);
    this.bottom = height - 1.7 * size;
    const shrunk = step.trace.oom && reference === step ? 0.9 : 1; // room for what failed
    const [from, to] = this.zoomed;
    const drawn = [step, other].filter(Boolean);
    this.longest = largestOf(drawn.filter((one) => one.trace.source === step.trace.source).map((one) => one.total)) || 1;
    const scaled = (x) => (shrunk * x - from) / (to - from);
    this.xsOf = new Map(drawn.map((one) => [one, places(one, reference, byTime, this.longest).map(scaled)]));
    this.xs = this.xsOf.get(step);
    const isToScale = (one) => byTime && one.trace.source === reference.trace.source;
    this.waitsOf = (one) => !isToScale(one) ? [] : one.trace.waits.map((times) =>
      times.map((seconds) => Math.min(Math.max(scaled(seconds / this.longest), 0), 1)));
    // After the last event a step may have to wait, for other ranks.
    this.endOf = new Map(drawn.map((one) =>
      [one, isToScale(one) && !one.trace.oom ? scaled(one.total / this.longest) : this.xsOf.get(one)[one.count]]));
    const { oom } = step.trace;
    this.full = this.reserved?.[step.count] ?? (oom?.in_use || step.allocated[step.count]); // where memory ran out
    const failed = oom?.asked ? this.full + oom.asked : 0;
    const highest = Math.max(step.peak, other?.peak ?? 0, largestOf(this.reserved ?? []), ...limits.map(([bytes]) => bytes), 1);
    const most = alone ? largestOf(step.series.get(alone)) || 1 : Math.max(highest, Math.min(failed, 1.5 * highest));
    // The axis stands still while a slider is dragged, until the picture would be too low or less than half as high.
    if (alone || !(most <= this.most && this.most < 2 * most)) this.most = most;
    this.top = this.most / (1 - (2.2 * size) / (this.bottom - STRIP));
    const phases = sameStep && other ? this.phasesBeyond(step, other) : this.phasesOf(byTime ? step : reference);
    const id = `memlab-clip-${Chart.drawn++}`;
    const plot = [
      this.shades(phases), this.areas(alone, hidden), this.waiting(id), this.reserved ? this.cached(id) : "", other ? this.outline(other, "memlab-other") : "",
      alone ? "" : this.outline(step, "memlab-line"), limits.map(([bytes]) => this.level(this.y(bytes), "memlab-limit")).join(""),
    ];
    this.box.innerHTML = `<svg class="memlab-drawing" width="100%" height="${height}" font-size="${size}" aria-hidden="true">`
      + `<clipPath id="${id}"><rect x="${this.left}" y="0" width="${this.width}" height="${height}"/></clipPath>`
      + `<g clip-path="url(#${id})">${plot.join("")}</g>${this.axis()}${this.texts(phases, other, limits, marks, alone ? 0 : failed)}</svg><svg class="memlab-cursor" width="100%" height="${height}" font-size="${size}" aria-hidden="true"></svg>`;
    this.box.setAttribute("aria-valuemax", step.count);
    this.box.setAttribute("aria-valuemin", 0);
    this.cursor = this.box.querySelector(".memlab-cursor");
    if (this.moment !== null) this.moment = Math.min(this.moment, step.count);
    this.mark();
  }

  points(kept, step, value) {
    const xs = this.xsOf.get(step), point = (x, m) => `${(this.left + x * this.width).toFixed(1)},${this.y(value(m)).toFixed(1)}`;
    const drawn = kept.map((m) => [xs[m], m]);
    for (const [from, to] of this.waitsOf(step)) { // while it waits nothing is allocated
      const before = drawn.findLastIndex(([x]) => x <= from);
      if (before >= 0 && drawn[before + 1]?.[0] >= to) drawn.splice(before + 1, 0, [to, drawn[before][1]]);
    }
    return [...drawn.map(([x, m]) => point(x, m)), point(this.endOf.get(step), step.count)];
  }

  areas(alone, hidden) {
    const kept = columns(this.step, this.xs, this.width);
    let below = new Float64Array(this.step.count + 1);
    let lower = this.points(kept, this.step, () => 0);
    let drawn = "";
    for (const [name, values] of this.step.series) {
      if ((alone && alone !== name) || hidden.includes(name)) continue;
      const above = below.map((bytes, m) => bytes + values[m]);
      const upper = this.points(kept, this.step, (m) => above[m]);
      drawn += `<polygon points="${[...upper, ...lower.reverse()].join(" ")}" fill="${colorOf(name)}"/>`;
      below = above;
      lower = upper.slice();
    }
    return drawn;
  }

  // What is reserved and free, hatched.
  cached(id) {
    const { step, reserved, size } = this, kept = columns(step, this.xs, this.width);
    const changes = step.trace.reserved.flatMap(([place]) => [place - 1, place]).filter((m) => m >= 0);
    const moments = [...new Set([...kept, ...changes])].sort((one, other) => one - other);
    const upper = this.points(moments, step, (m) => reserved[m]), lower = this.points(kept, step, (m) => step.allocated[m]);
    return `<pattern id="${id}-cached" width="${size / 2}" height="${size / 2}" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">`
      + `<line class="memlab-hatch" y2="${size / 2}"/></pattern><polygon points="${[...upper, ...lower.reverse()].join(" ")}" fill="url(#${id}-cached)"/>`
      + `<polyline class="memlab-reserved" points="${upper.join(" ")}"/>`;
  }

  outline(step, kind) {
    const xs = this.xsOf.get(step);
    const points = this.points(columns(step, xs, this.width), step, (m) => step.allocated[m]).join(" ");
    const edge = kind === "memlab-other" ? `<polyline class="memlab-edge" points="${points}"/>` : "";
    return `${edge}<polyline class="${kind}" points="${points}"/>`;
  }

  // The phases of a step, with where each begins and ends, 0 to 1, as far as it can be seen. A wait between two phases
  // belongs to neither.
  phasesOf(step) {
    const xs = this.xsOf.get(step), seen = (moment) => Math.min(Math.max(xs[moment], 0), 1);
    const phases = step.phases.map((phase) => ({ ...phase, step, from: seen(phase.begin), to: seen(phase.end) }));
    for (const [from, to] of this.waitsOf(step)) {
      const next = phases.findIndex(({ begin }) => seen(begin) <= from && to <= seen(begin + 1));
      if (next > 0) [phases[next - 1].to, phases[next].from] = [from, to];
    }
    return phases;
  }

  // Those of a step that ran out of memory, and then of the whole one.
  phasesBeyond(step, whole) {
    const own = this.phasesOf(step), last = own.pop(), { from, to } = last ?? { from: 0, to: 0 };
    const [next, ...others] = this.phasesOf(whole).filter((phase) => phase.to > to);
    if (last && last.name === next?.name) return [...own, { ...next, from }, ...others];
    return [...own, ...[last].filter(Boolean), ...(next ? [{ ...next, from: to }] : []), ...others];
  }

  shades(phases) {
    return phases.filter(({ name }) => name === "forward" || name === "optimizer").map(({ from, to }) =>
      `<rect class="memlab-shade" x="${this.left + from * this.width}" y="0" height="${this.bottom}" width="${(to - from) * this.width}"/>`).join("");
  }

  // Where the rank computes nothing and waits for others.
  waiting(id) {
    const spans = this.waitsOf(this.step).filter(([from, to]) => to > from);
    const cell = this.size / 2;
    return spans.length === 0 ? "" : `<pattern id="${id}-waits" width="${cell}" height="${cell}" patternUnits="userSpaceOnUse">`
      + `<line class="memlab-wait" x2="${cell}" y1="${cell / 2}" y2="${cell / 2}"/></pattern>`
      + spans.map(([from, to]) => `<rect class="memlab-waits" x="${(this.left + from * this.width).toFixed(1)}" y="0" height="${this.bottom}" `
        + `width="${((to - from) * this.width).toFixed(1)}" fill="url(#${id}-waits)"/>`).join("");
  }

  axis() {
    const marks = ticks(this.top, Math.max(2, Math.floor((this.bottom - STRIP) / (2.4 * this.size))));
    const numbers = marks.map((bytes) => this.level(this.y(bytes), "memlab-grid")
      + this.write(tickText(bytes), this.left - 6, this.y(bytes) + this.size / 3, "end")).join("");
    const { trace, count } = this.step;
    const base = this.height - 4;
    const [from, to] = this.zoomed;
    const ends = this.byTime
      ? [from ? formatSeconds(from * this.longest) : "0 s", formatSeconds(to * this.longest)]
      : [from, to].map((part) => Math.round(part * count).toLocaleString("en-US"));
    const others = this.seconds ? `: others take ${formatSeconds(this.seconds)}` : "";
    const tried = this.byTime && trace.source === "measured"
      ? [`time in a step whose tensors are tracked${others}`, `time in a tracked step${others}`, `tracked step${others}`, "time, tracked"]
      : this.byTime ? [`time in one step, estimated on ${trace.device}`, "time in one step, estimated", "time, estimated", "time"]
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
    const left = this.x(this.step.count);
    if (!failed || left > this.left + this.width) return "";
    const top = Math.max(this.y(failed), STRIP), width = Math.max(0.05 * this.width, 10);
    const height = Math.max(this.y(this.full) - top, 3);
    taken.push({ left, right: left + width, top, bottom: top + height });
    return `<rect class="memlab-failed" x="${left.toFixed(1)}" y="${top.toFixed(1)}" width="${width.toFixed(1)}" height="${height.toFixed(1)}"/>`;
  }

  // What stands in front of the areas: texts, each where it meets no other, the peaks, and a request that failed.
  texts(phases, other, limits, marks, failed) {
    const taken = [];
    const names = this.phaseNames(phases, taken), request = this.failure(failed, taken);
    const waits = this.waitName(taken);
    const limitNames = limits.map(([bytes, text]) => this.put(text, this.besideLimit(this.y(bytes)), "memlab-limit-name", taken));
    for (const [bytes] of limits) {
      taken.push({ left: this.left, right: this.left + this.width, top: this.y(bytes) - 1, bottom: this.y(bytes) + 1 });
    }
    const held = this.reserved ? this.reservedName(taken) : "";
    const peaks = this.alone ? [] : [[this.step, marks[0]], [other, marks[1]]].filter(([step]) => step);
    const needles = peaks.map(([step]) => ({ ...around(this.summit(step)), bottom: this.bottom }));
    return [names, waits, request, ...limitNames, held, ...peaks.map(([step, name]) => this.peak(step, name, taken, needles))].join("");
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

  // The widest wait is named: among the phases, or where these leave no room, below them.
  waitName(taken) {
    const widest = this.waitsOf(this.step).reduce((one, other) => other[1] - other[0] > one[1] - one[0] ? other : one, [0, 0]);
    const width = (widest[1] - widest[0]) * this.width;
    if (width < 4) return "";
    const middle = this.left + ((widest[0] + widest[1]) / 2) * this.width;
    const rows = [1, 2.4].map((row) => [middle, row * this.size + 3, "middle"]);
    return this.put("waits for other ranks", rows, "memlab-quiet", taken);
  }

  phaseNames(phases, taken) {
    const named = new Set(), alone = this.forwardsAlone(phases);
    const seen = phases.filter(({ from, to }) => to > from);
    return seen.sort((one, other) => other.to - other.from - (one.to - one.from)).map((phase) => {
      const { name, step, begin, end, from, to } = phase;
      const text = name === "other" ? this.stripName(step, begin, end) : alone.has(phase) ? "forward only" : name;
      const isThin = to - from < 0.03 && end < step.count;
      if (named.has(text) || (name === "other" && isThin)) return "";
      const made = this.put(text, [[this.left + ((from + to) / 2) * this.width, this.size + 3, "middle"]], "memlab-quiet", taken);
      if (made) named.add(text);
      return made;
    }).join("");
  }

  // Forwards that no backward follows, as an evaluation's, where another one has its backward.
  forwardsAlone(phases) {
    const working = phases.filter(({ name }) => name !== "other");
    const alone = working.filter(({ name }, i) => name === "forward" && working[i + 1]?.name !== "backward");
    return new Set(working.some(({ name }) => name === "backward") ? alone : []);
  }

  besideLimit(y) {
    const { size, left } = this, right = left + this.width;
    return [y - 5, y + 1.1 * size, y - 1.3 * size].flatMap((base) =>
      [[right - 4, base, "end"], [left + 4, base, "start"], [(left + right) / 2, base, "middle"]]);
  }

  reservedName(taken) {
    const { step, reserved, size, xs } = this, most = largestOf(reserved);
    const isWhole = most === step.trace.peak_reserved; // else another step holds more
    const text = `reserved: ${isWhole ? "" : "in this step "}at most ${formatBytes(most)}`;
    const places = [0.98, 0.75, 0.5, 0.25, 0.02].map((part) => {
      const moment = xs.findLastIndex((x) => x <= part);
      return moment < 0 ? null : [this.left + part * this.width, this.y(reserved[moment]), part > 0.5 ? "end" : "start"];
    }).filter(Boolean);
    const tried = [-5, 1.1 * size].flatMap((shift) => places.map(([x, y, anchor]) => [x, y + shift, anchor]));
    return this.put(text, tried, "memlab-reserved-name", taken);
  }

  summit(step) {
    const moment = step.summit;
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
    const at = (lines) => [[x, "middle"], [x + 10, "start"], [x - 10, "end"]].map(([from, anchor]) => [from, y + lines * size, anchor]);
    const beside = [[x + 12, y + size / 3, "start"], [x - 12, y + size / 3, "end"]];
    const tried = [...[-0.7, -1, -1.5].flatMap(at), ...beside, ...[-2, -2.8, -3.6, 1.6, 2.4, 3.2].flatMap(at)];
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
    const here = this.alone ? step.series.get(this.alone)?.[moment] ?? 0 : step.allocated[moment];
    const x = this.x(moment), y = this.y(here);
    const [largest] = isReplay ? [] : step.alive(moment, this.alone);
    let life = "";
    if (largest) {
      const { born, freed } = step.lives[largest.place];
      const from = Math.max(this.x(born), this.left), to = Math.min(this.x(freed ?? step.count), this.left + this.width);
      life = `<rect class="memlab-life" x="${from}" y="${this.bottom + 1}" width="${Math.max(to - from, 2)}" height="5" fill="${colorOf(largest.category)}"/>`;
    }
    const isRight = x > this.left + 0.75 * this.width;
    const top = this.summit(step), isNear = Math.abs(top.x - x) < 8 * this.size && Math.abs(top.y - y) < 3 * this.size; // of its text
    const base = Math.min(y + (isNear ? 1.6 : -0.5) * this.size, this.bottom - 4);
    const bytes = moment === step.summit ? "" : this.write(formatBytes(here), x + (isRight ? -8 : 8), base, isRight ? "end" : "start", "memlab-bold");
    this.cursor.innerHTML = this.xs[moment] < 0 || this.xs[moment] > 1 ? "" : `<line x1="${x}" x2="${x}" y1="${STRIP}" y2="${this.bottom}"/><circle cx="${x}" cy="${y}" r="4"/>${bytes}${life}`;
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
