// The picture with all that is said of it

class Picture {
  // ask: called with what the kernel, or the page, is to do: ask({bring_back: row})
  constructor(root, ask = () => {}) {
    this.root = root;
    this.send = ask;
    this.byTime = true;
    this.alone = null;
    this.reserved = null; // whether what is reserved is drawn; null: where it is much more than what is allocated
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
    toolbar.append(this.wholeButton, this.pinButton, this.axisButton, pressable("Replay", "Go through the step once, slowly", () => this.replay(8)), this.questionButton, this.presentButton);
    const over = element("div", { class: "memlab-over" }, part("settings"), toolbar);
    const stage = element("div", { class: "memlab-stage" }, over, part("head"), part("why", "p"), this.chart.box, part("legend"));
    const code = part("code", "pre", { tabindex: 0, "aria-label": "the training loop" });
    part("brief", "p"); // of what somebody points at, where what stands beside the chart may be out of sight
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
    this.marked = null;
    this.asked(this.chart.moment);
  }

  // A is only drawn beside the same model.
  get pinned() {
    return this.a?.shown.model === this.shown?.model ? this.a : null;
  }

  get showsReserved() {
    return Boolean(this.step?.reserved) && (this.reserved ?? this.shown.is_idle);
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
    const its = this.pinned?.shown.limits ?? [];
    const others = its.filter(([, text]) => !shown.limits.some(([, own]) => own === text)).map(([bytes, text]) => [bytes, `A: ${text}`]);
    const limits = [...shown.limits, ...others].filter(([bytes]) => step.trace.oom || highest > bytes / 4);
    this.chart.draw(step, this.other, {
      limits, alone: this.alone, byTime: timed && this.byTime, hidden: shown.hidden, reserved: this.showsReserved,
      seconds: step.trace.source === "measured" ? shown.seconds : null,
      size: presenting ? Math.min(Math.max(14, innerHeight / 30), 24) : 14,
      height: presenting ? this.room() : Math.min(Math.max(200, 0.36 * innerHeight), 480),
      sameStep: !this.pinned && this.predicted?.trace.source === step.trace.source,
      marks: this.pinned ? ["B", "A"] : ["", shown.outline?.mark ?? ""],
    });
    this.axisButton.textContent = this.byTime ? "by event" : "by time";
    this.axisButton.disabled = !timed;
    this.wholeButton.hidden = this.chart.zoomed === WHOLE;
    this.pinButton.textContent = this.a ? "Unpin A" : "Pin as A";
    this.asked(this.chart.moment);
  }

  // What the window leaves for the chart: the rest of its column stays as high as it is. The table may wait.
  room() {
    const rest = this.root.offsetHeight - this.table.offsetHeight - this.chart.box.offsetHeight;
    return Math.max(150, innerHeight - this.root.getBoundingClientRect().top - rest - 16);
  }

  say() {
    const { step, shown } = this;
    const { trace } = step;
    const number = trace.oom ? "out of memory" : `${trace.is_lower_bound ? "at least " : ""}${formatBytes(step.peak)}`;
    const far = trace.sent_to_other_machines ? `, ${formatBytes(trace.sent_to_other_machines)} to other machines` : "";
    const sent = trace.sent ? [`sends ${formatBytes(trace.sent)} a step${far}`] : [];
    const more = trace.oom ? [...this.comparison(), ...this.limitWords()] : [...this.limitWords(), ...sent, ...this.comparison()];
    const words = [shown.origin, ...more];
    this.settings.replaceChildren(element("b", {}, shown.heading), ...(this.a ? [" ", element("span", {}, this.nameOfA())] : []));
    this.head.replaceChildren(
      element("span", { class: `memlab-number${trace.oom ? " memlab-alert" : ""}` }, number),
      element("span", { class: "memlab-facts", title: shown.facts }, words.join(" · ")),
      this.brief,
    );
    const reserved = step.reserved && element("button", {
      type: "button", "aria-pressed": String(this.showsReserved), title: "What PyTorch holds of the card: hatched is cached and free. Press to draw it, or not",
      onclick: () => { this.reserved = !this.showsReserved; this.draw(); this.focusLegend("reserved"); },
    }, element("i", { class: "memlab-hatched" }), "reserved");
    this.legend.replaceChildren(...[...step.series.keys()].filter((name) => !shown.hidden.includes(name)).map((name) =>
      element("button", {
        type: "button", "aria-pressed": String(this.alone === name), title: `${plural(name)}: ${MEANINGS[name]}. Press to see them alone, or all again`,
        onclick: () => { this.alone = this.alone === name ? null : name; this.draw(); this.focusLegend(plural(name)); },
      }, element("i", { style: `background:${colorOf(name)}` }), plural(name))), ...[reserved].filter(Boolean));
    this.why.textContent = shown.why; // in Present, where the sentence has no room
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
    if (!this.pinned) return "A is another model, so it is not drawn";
    const settings = there.heading.split(" · ").filter((setting) => !here.includes(setting));
    const origin = there.origin === shown.origin ? [] : [there.origin];
    return `beside A: ${[...settings, ...origin].join(", ") || "the same settings"}`;
  }

  focusLegend(text) {
    [...this.legend.children].find((button) => button.textContent === text)?.focus();
  }

  limitWords() {
    const { step, shown } = this;
    const { oom } = step.trace, whole = oom ? this.predicted : step; // it got no further than that
    const reserved = whole?.trace.peak_reserved;
    return shown.limits.map(([bytes, text, name]) => {
      if (oom && whole?.peak <= bytes && reserved > bytes) return `${formatBytes(reserved)} reserved, ${formatBytes(reserved - bytes)} over ${name}`;
      const rest = bytes - whole?.peak;
      if (rest < 0) return `${formatBytes(-rest)} over ${name}`;
      if (oom) return "";
      if (name === "the budget") return `${formatBytes(rest)} below the budget`;
      // Near the limit an estimate may be wrong, and what is at least so much may be more.
      const fits = step.trace.source === "about" || step.trace.is_lower_bound ? "probably fits" : "fits";
      return `${fits}, ${reserved ? `${formatBytes(reserved)} reserved, ` : ""}${formatBytes(bytes - (reserved || step.peak))} to spare`;
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
    const all = known.map((name) => [name, (here.get(name) ?? 0) - (there.get(name) ?? 0)]);
    const least = largestOf(all.map(([, change]) => Math.abs(change))) / 100; // less is not worth a line
    const changes = all.filter(([, change]) => Math.abs(change) > least);
    const rest = all.reduce((sum, [, change]) => sum + (Math.abs(change) > least ? 0 : change), 0);
    const signed = (change) => `${change > 0 ? "+" : "−"}${formatBytes(Math.abs(change))}`;
    changes.sort(([, one], [, other]) => Math.abs(other) - Math.abs(one));
    const row = (text, ...head) => element("tr", {}, element("th", { scope: "row" }, ...head), element("td", {}, text));
    const rows = changes.map(([name, change]) =>
      row(signed(change), element("i", { style: `background:${colorOf(name)}` }), plural(name)));
    if (changes.length < known.length) rows.push(row(rest ? signed(rest) : "same", changes.length ? "all else" : "every category"));
    const held = [step, a.step].map(({ trace }) => trace.peak_reserved);
    if (this.showsReserved && held.every(Boolean)) {
      const change = held[0] - held[1];
      rows.push(row(change ? signed(change) : "same", element("i", { class: "memlab-hatched" }), "reserved"));
    }
    this.difference.replaceChildren(element("table", {}, element("caption", {}, "B against A, at their peaks"), element("tbody", {}, ...rows)));
  }

  pin() {
    this.a = this.a || !this.step ? null : { step: this.step, shown: this.shown };
    this.marked = null; // the code box has another height now
    this.draw();
  }

  // What somebody pointed at

  asked(moment) {
    const { step } = this;
    const asked = moment !== null;
    if (asked !== this.root.classList.contains("memlab-asked")) {
      this.head.style.height = asked ? `${this.head.getBoundingClientRect().height}px` : ""; // nothing moves below the pointer
      this.root.classList.toggle("memlab-asked", asked);
    }
    if (!step) return this.highlight(null);
    if (!asked) moment = step.summit;
    this.highlight(moment);
    const alive = step.alive(moment, this.alone);
    const whole = this.alone ? step.series.get(this.alone)[moment] : step.allocated[moment];
    const summit = step.trace.oom ? "where memory ran out" : "at the peak";
    const at = step.seconds[step.count] ? formatSeconds(step.seconds[moment]) : "";
    const { oom } = step.trace;
    const failed = oom && moment === step.count ? `${oom.phase} of ${oom.module || oom.op}` : step.placeOf(moment);
    const title = [asked ? at : summit, failed].filter(Boolean).join(" · ");
    const held = this.showsReserved && !this.alone ? `; reserved: ${formatBytes(step.reserved[moment])}` : "";
    const known = element("span", { class: "memlab-count" }, `${alive.length ? ` in ${counted(alive.length, "tensor")}` : ""}${held}`);
    const rows = this.alone ? this.kinds(alive, moment, asked) : this.categories(alive, moment, asked);
    this.answer.replaceChildren(
      element("code", {}, this.lineAt(moment).trim()), // where the code has no room
      element("b", {}, title),
      element("p", {}, element("span", { class: "memlab-happened" }, asked ? this.happened(moment) : ""), `alive: ${formatBytes(whole)}${this.alone ? ` of ${plural(this.alone)}` : ""}`, known),
      element("ul", {}, ...rows),
      ...(asked ? [] : [element("p", { class: "memlab-quiet" }, "Point at the chart, or press Tab and the arrow keys, to ask of another moment.")]),
    );
    if (!asked) return;
    const [largest] = alive, named = largest ? [`the largest: ${step.describe(largest.place).name}, ${formatBytes(largest.count)}`] : [];
    this.brief.textContent = [title, ...named].join(" · ");
    this.chart.box.setAttribute("aria-valuetext", this.answer.innerText || this.answer.textContent);
  }

  happened(moment) {
    if (!moment) return "";
    const bytes = this.step.trace.events.bytes[moment - 1];
    const by = this.step.text("op", moment - 1).replace("aten.", "");
    return bytes > 0 ? `+${formatBytes(bytes)}${by ? ` by ${by}` : ""}; ` : `${formatBytes(-bytes)} freed; `;
  }

  // The largest categories of what is alive, each with its largest tensor.
  categories(alive, moment, asked) {
    const groups = Map.groupBy(alive, (one) => one.category);
    const sum = (tensors) => tensors.reduce((bytes, { count }) => bytes + count, 0);
    const sorted = [...groups].map(([name, tensors]) => [name, tensors, sum(tensors)]).sort(([, , one], [, , other]) => other - one);
    return sorted.slice(0, this.root.closest(".memlab-present") ? 6 : 4).map(([name, [largest, ...others], bytes]) => {
      const { name: text, shape } = this.step.describe(largest.place);
      const many = others.length ? `${formatBytes(largest.count)}, the largest of ${others.length + 1}` : "";
      return this.row(name, plural(name), bytes, [text, shape, many], this.life(largest, moment), asked && largest === alive[0]);
    });
  }

  // What is alive of one category: tensors of one size that alike modules made stand together, "blocks.*.mlp.1 gelu".
  kinds(alive, moment, asked) {
    const told = alive.map((one) => ({ ...one, ...this.step.describe(one.place) }));
    const groups = [...Map.groupBy(told, ({ name, shape, count }) => [alike(name), shape, count].join()).values()];
    groups.sort((one, other) => other.length * other[0].count - one.length * one[0].count);
    return groups.slice(0, 4).map((group, rank) => {
      const [first] = group, many = group.length > 1;
      const words = many ? [`${group.length} × ${formatBytes(first.count)}`, first.shape] : [first.shape];
      return this.row(first.category, many ? alike(first.name) : first.name, group.length * first.count, words, many ? "" : this.life(first, moment), asked && !rank);
    });
  }

  row(category, name, bytes, words, life, withLife) {
    const said = category === "workspace" ? [MEANINGS.workspace] : [...words, withLife ? life : ""].filter(Boolean);
    return element("li", { title: category === "workspace" ? null : life || null },
      element("i", { style: `background:${colorOf(category)}` }), element("span", {}, ...breakable(name, NAMES)), element("b", {}, formatBytes(bytes)),
      element("small", {}, ...breakable(said.join(" · "), NAMES)));
  }

  // From when to when a tensor lives.
  life({ place }, moment) {
    const { step } = this, { born, freed } = step.lives[place];
    const apart = (from, to) => {
      const seconds = step.seconds[to] - step.seconds[from];
      return this.byTime && seconds >= 1e-6 ? formatSeconds(seconds) : counted(to - from, "event");
    };
    const since = !born ? "older than the step" : born === moment ? "allocated now" : `allocated ${apart(born, moment)} ago in ${step.text("phase", born - 1)}`;
    const until = freed === null ? step.trace.oom ? "alive when memory runs out" : "outlives the step" : `freed in ${apart(moment, freed)} in ${step.text("phase", freed - 1)}`;
    return `${since}, ${until}`;
  }

  lineAt(moment) {
    const number = moment ? this.step.trace.events.line[moment - 1] : 0;
    return this.source?.lines[number - this.source.first] ?? "";
  }

  highlight(moment) {
    if (!this.source) return this.code.replaceChildren();
    const number = moment ? this.step.trace.events.line[moment - 1] : 0;
    if (this.marked === number) return;
    this.marked = this.code.clientHeight ? number : null; // what is not on screen yet cannot be scrolled to
    const { lines, first } = this.source;
    this.code.replaceChildren(...lines.map((line, i) => {
      const indent = line.length - line.trimStart().length + 2; // of what does not fit on its line
      const style = `padding-left:${indent}ch;text-indent:-${indent}ch`;
      return element(first + i === number ? "mark" : "span", { style }, ...breakable(line || " ", /(?<=[(,=[] ?)(?=\S)/));
    }));
    const mark = this.code.querySelector("mark");
    if (mark) this.code.scrollTop = mark.offsetTop - (this.code.clientHeight - mark.offsetHeight) / 2;
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
      const place = chart.moment ?? this.step.count;
      this.answer.replaceChildren(element("b", {}, this.step.placeOf(place)), element("p", {}, `alive: ${formatBytes(this.step.allocated[place])}`));
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
        odd >= 0 ? element("div", { class: "memlab-alert" }, `The loss is ${run.losses[odd]} since step ${odd + 1}.${run.going ? " Stop, or let it go on." : ""}`) : null),
      spark([run.losses, ...run.earlier], run.count, "loss of each step"),
      element("div", {},
        run.sample ? element("pre", { class: "memlab-sample", "aria-label": "what the model says" }, run.sample) : null,
        settled ? null : spark([run.peaks.map((peak, i) => peak ?? run.peaks.slice(0, i).findLast((one) => one !== null) ?? null)], run.count, "peak of each step"),
        element("div", {}, this.peaks(run, peaks, settled))),
    );
    const button = this.root.closest(".memlab")?.querySelector(".memlab-go");
    button?.style.setProperty("--memlab-done", run.going ? run.losses.length / run.count : 0);
    if (this.root.closest(".memlab-present") && this.run.offsetHeight !== this.runHeight) {
      this.runHeight = this.run.offsetHeight; // the chart has what it leaves
      this.draw();
    }
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
    // The fastest first, else the least; what is not known comes last, and by its peak what ran out of memory stands where it would with room enough.
    const value = (row) => row.failed && this.order === "peak" ? row.needed ?? Infinity : this.order === "rate" ? -(row.rate ?? -Infinity) : row[this.order] ?? Infinity;
    const compared = (one, other) => typeof one === "string" ? NATURAL.compare(one, other) : one === other ? 0 : one - other;
    const sorted = [...rows].sort((one, other) => (this.order && compared(value(one), value(other))) || other.number - one.number);
    const head = heads.map(([text, name]) => element("th", { scope: "col", "aria-sort": this.order === name ? "ascending" : "none" },
      text ? pressable(text, `Order by ${text}`, () => { this.order = this.order === name ? "" : name; this.showRows(this.rows); }) : "run"));
    const body = sorted.map((row) => element("tr", { class: row.best ? "memlab-best" : "" },
      element("th", { scope: "row" }, pressable(`${row.number}${row.best ? " ★" : ""}`, "Bring these settings back", () => this.send({ bring_back: row.number }), { "aria-label": `bring back run ${row.number}` })),
      ...[row.settings, row.what, row.failed ? `out of memory${row.needed ? ` (${formatBytes(row.needed)})` : ""}` : formatBytes(row.peak), row.seconds ? formatSeconds(row.seconds) : "", row.rate ? Number(row.rate.toPrecision(3)).toLocaleString("en-US") : ""]
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
    this.marked = null; // the code box has another height now
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
    this.marked = null;
    this.draw();
  }

  // The guesses and claims beside the panel: a kernel knows those of its notebook, a page finds its own.
  showQuestions(questions) {
    this.questions = questions;
    this.questionButton.hidden = !questions.length;
  }

  // A question, then its answer, then the next one; after the last the chart alone.
  nextQuestion() {
    const none = [["No guess and no claim has been shown yet: run their cells in the notebook first.", ""]];
    const asked = this.questions.length ? this.questions : none;
    const place = this.turned++, [question, answer] = asked[place >> 1] ?? [];
    if (!question) this.turned = 0;
    this.question.replaceChildren(...(question ? [element("p", {}, question), ...(place % 2 && answer ? [element("p", {}, element("b", {}, answer))] : [])] : []));
  }

  // Arrow keys move the first slider where nothing else waits for them
  presentKey(event) {
    const panel = this.root.closest(".memlab");
    if (event.key === "Escape" && this.chart.pinned) this.chart.leave();
    else if (event.key === "Escape") this.leavePresent();
    else if (event.key.toLowerCase() === "q" && !event.ctrlKey && !event.metaKey && !event.target.matches("input:not([type=range]), textarea, select")) this.nextQuestion();
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
