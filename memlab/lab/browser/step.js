// A step: what a trace says of each moment. Moment 0 is the start, moment m is after event m.

class Step {
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
    // What is held from the driver, with what is cached and free; null where nothing is, as on a CPU.
    this.reserved = trace.reserved.length ? new Float64Array(this.count + 1) : null;
    trace.reserved.forEach(([place, bytes]) => this.reserved.fill(bytes, place));
    this.peakAt = this.allocated.indexOf(largestOf(this.allocated));
    this.peak = this.allocated[this.peakAt];
    this.total = Math.max(trace.likely_seconds ?? 0, this.seconds[this.count]); // the step on show may be the first, which sets up
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

  // The moment of its peak, or where memory ran out.
  get summit() {
    return this.trace.oom ? this.count : this.peakAt;
  }

  // "backward of blocks.3.mlp"
  placeOf(moment) {
    if (!moment) return "start of the step";
    const module = this.text("module", moment - 1);
    return `${this.text("phase", moment - 1)}${module ? ` of ${module}` : ""}`;
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

  // "logits (head mm)", "8 × 1024 × 50257 float32"
  describe(place) {
    const { events, storages } = this.trace;
    const word = (column) => storages.texts[storages[column][place]];
    const { born } = this.lives[place];
    const maker = born && events.storage[born - 1] === place ? born - 1 : -1;
    const made = maker < 0 ? "" : `${this.text("module", maker)} ${this.text("op", maker).replace("aten.", "")}`.trim();
    const shape = word("shape") ? word("shape").replaceAll(" ", " × ") : "";
    const known = word("name") || made, variable = word("variable");
    const name = variable && known ? `${variable} (${known})` : variable || known || word("category");
    return { name, shape: `${shape} ${word("dtype")}`.trim() };
  }
}
