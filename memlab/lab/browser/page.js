// A panel on a page without Python: every step was predicted beforehand, and the controls choose one of them; runs were
// recorded, and are played. Guesses are judged, too. Its names are those of the files before it.

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

// What many steps have in common was packed once: {"$": 3} is the fourth of the shared lists. Events have the time that
// passes between them, and of a storage how much younger the youngest so far is.
function whole(value, shared) {
  if (Array.isArray(value)) return value.map((part) => whole(part, shared));
  if (value === null || typeof value !== "object") return value;
  if ("$" in value) return shared[value.$];
  const made = Object.fromEntries(Object.entries(value).map(([name, part]) => [name, whole(part, shared)]));
  if (made.microseconds) {
    let now = 0, youngest = -1;
    made.seconds = made.microseconds.map((passed) => (now += passed) / 1e6);
    made.storage = made.age.map((age) => {
      const place = youngest - age;
      youngest = Math.max(youngest, place);
      return place;
    });
  }
  return made;
}

// One control: its row, the place that it stands at, and how to put it elsewhere.
function control(axis, id, value, changed) {
  const label = element("label", { for: id }, axis.label);
  const row = (...parts) => element("div", { class: "memlab-row" }, label, ...parts);
  if (axis.kind === "slider") {
    const shown = element("output", { for: id });
    const input = element("input", { id, type: "range", min: 0, max: axis.values.length - 1, step: 1, list: `${id}-values` });
    const values = element("datalist", { id: `${id}-values` }, ...axis.values.map((text, place) => element("option", { value: place, label: text })));
    const ends = element("small", { class: "memlab-quiet" }, axis.values.join(", "));
    const put = (place) => {
      input.value = place;
      shown.textContent = axis.values[place];
      input.setAttribute("aria-valuetext", axis.values[place]);
    };
    put(value);
    input.addEventListener("input", () => { put(input.value); changed(); });
    return { row: row(shown, input, values, ends), read: () => Number(input.value), put };
  }
  if (axis.kind === "switch") {
    const input = element("input", { id, type: "checkbox", onchange: changed });
    const put = (place) => { input.checked = place === 1; };
    put(value);
    return { row: row(input), read: () => Number(input.checked), put };
  }
  const input = element("select", { id, onchange: changed }, ...axis.values.map((text) => new Option(text)));
  const put = (place) => { input.selectedIndex = place; };
  put(value);
  return { row: row(input), read: () => input.selectedIndex, put };
}

// The settings travel in the address: #lab-start-here?batch_size=8&gpu=T4
function linked(id, axes) {
  const [name, query] = location.hash.slice(1).split("?");
  const wanted = new URLSearchParams(name === id ? query : "");
  return axes.map((axis) => {
    const place = axis.values.indexOf(wanted.get(axis.name));
    return place < 0 ? axis.start : place;
  });
}

// Play a recorded run: its step, and loss after loss what was seen of it. Gives what breaks it off.
function play(picture, { shown, run, samples, xrayed, sentence }, ended) {
  const steps = run.losses.length, by = Math.max(1, Math.round(steps / 60));
  let step = 0;
  picture.show(shown);
  picture.showSentence("");
  const next = () => {
    step = Math.min(step + by, steps);
    const going = step < steps;
    const sample = samples.findLast(([from]) => from <= step)[1];
    const xrays = xrayed.slice(0, step).filter(Boolean).length;
    picture.showRun({ ...run, going, sample, xrays, losses: run.losses.slice(0, step), peaks: run.peaks.slice(0, step) });
    if (going) return;
    clearInterval(timer);
    picture.showSentence(sentence);
    ended();
  };
  const timer = setInterval(next, Math.min(Math.max(6000 / steps, 100), 600));
  next();
  picture.run.scrollIntoView({ block: "nearest" });
  return () => clearInterval(timer);
}

async function start(panel) {
  const { title, axes, shown, runs, sentences, code, shared } = await unpack(panel.dataset.grid);
  const begun = linked(panel.id, axes);
  const box = element("div");
  const show = () => {
    const number = axes.reduce((sum, axis, i) => sum * axis.values.length + controls[i].read(), 0);
    picture.show(whole(shown[number], shared));
    picture.showSentence(sentences[number]);
  };
  const settings = () => Object.fromEntries(axes.map((axis, i) => [axis.name, axis.values[controls[i].read()]]));
  const link = () => history.replaceState(null, "", `#${panel.id}?${new URLSearchParams(settings())}`);
  const moved = () => {
    leaveRun();
    picture.showRun(null);
    show();
    link();
  };
  const controls = axes.map((axis, i) => control(axis, `${panel.id}-${axis.name}`, begun[i], moved));
  let leaveRun = () => {};
  let going = false;
  const go = pressable("Run (recorded)", "Play a run that was recorded", () => {
    if (going) return moved();
    const chosen = settings();
    const apart = (run) => Object.keys(run.settings).filter((name) => run.settings[name] !== chosen[name]).length;
    const [nearest] = runs.toSorted((one, other) => apart(one) - apart(other));
    axes.forEach((axis, i) => {
      const place = axis.name === "of-model" ? axis.values.length - 1 : axis.values.indexOf(nearest.settings[axis.name]);
      if (place >= 0) controls[i].put(place);
    });
    link();
    const stop = play(picture, whole(nearest, shared), () => leaveRun());
    leaveRun = () => {
      stop();
      going = false;
      go.textContent = "Run (recorded)";
    };
    going = true;
    go.textContent = "Stop";
  }, { class: "memlab-go" });
  const recorded = runs.length ? [go, element("small", { class: "memlab-quiet" }, `recorded on ${runs[0].shown.trace.device}`)] : [];
  const fields = element("fieldset", { class: "memlab-left" }, element("legend", {}, title), ...controls.map((one) => one.row), ...recorded);
  panel.replaceChildren(element("div", { class: "memlab-body" }, fields, element("div", { class: "memlab-right" }, box)));
  const picture = new Picture(box, (wish) => wish.questions && picture.showQuestions(questionsOf(document)));
  picture.showCode(code);
  show();
  if (location.hash.slice(1).split("?")[0] === panel.id) panel.scrollIntoView();
}

// A guess: the same words as memlab/lab/guess.py has for them.
function judgement({ choices, actual, tolerance }, answers) {
  const text = (answer) => choices ? answer : formatBytes(answer);
  const late = answers.length > 1 ? `${text(answers.at(-1))} does not count any more, because the answer has been told. ` : "";
  const error = choices ? 0 : answers[0] / actual - 1, percent = Math.round(100 * Math.abs(error));
  const far = percent ? `${percent}% too ${error > 0 ? "high" : "low"}` : "right";
  const how = choices && answers[0] !== actual ? "not this one" : far;
  const within = `within ${Number((100 * tolerance).toPrecision(3))}%`;
  const limit = !percent ? "" : Math.abs(error) <= tolerance ? ` That is ${within}, which counts as right.` : ` To count as right it must be ${within}.`;
  return [`${late}Your guess: ${text(answers[0])}. It is ${text(actual)}: `, element("b", {}, how), `.${limit}`];
}

function ask(box) {
  const guess = JSON.parse(box.dataset.guess), answers = [];
  const said = element("output", { class: "memlab-said" });
  const field = (name, tag, more, ...inside) => element(tag, { name, required: true, ...more }, ...inside);
  const inputs = guess.choices
    ? guess.choices.map((choice) => element("label", {}, field("choice", "input", { type: "radio", value: choice }), ` ${choice}`))
    : [field("size", "input", { type: "number", min: 0, step: "any", "aria-label": "your guess" }),
      field("unit", "select", { "aria-label": "unit" }, ...[["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]].map(([text, bytes]) => new Option(text, bytes)))];
  const form = element("form", {
    onsubmit: (event) => {
      event.preventDefault();
      const { choice, size, unit } = Object.fromEntries(new FormData(form));
      const answer = choice ?? Math.round(size * unit);
      if (answer !== answers.at(-1)) answers.push(answer);
      said.replaceChildren(...judgement(guess, answers));
    },
  }, element("fieldset", {}, element("legend", {}, guess.question), ...inputs, element("button", {}, "Guess")), said);
  box.replaceChildren(form);
}

// The guesses and claims of a lesson, each with its answer, for Present mode.
function questionsOf(lesson) {
  return [...lesson.querySelectorAll(".memlab[data-guess], details")].flatMap((box) => {
    if (box.dataset.guess) {
      const { question, choices, actual } = JSON.parse(box.dataset.guess);
      const offered = choices ? ` (${choices.join(", ")})` : "";
      return [[`${question}${offered}`, `It is ${choices ? actual : formatBytes(actual)}.`]];
    }
    const [vote, ...verdict] = box.children; // as memlab/lab/claim.py has them, behind the claim
    if (!vote?.textContent.startsWith("True, true when")) return [];
    return [[`Claim: ${box.previousElementSibling?.textContent ?? ""}`, verdict.map((part) => part.textContent).join(" ")]];
  });
}

function startAll() {
  document.querySelectorAll(".memlab[data-grid]").forEach(start);
  document.querySelectorAll(".memlab[data-guess]").forEach(ask);
}
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startAll);
else startAll();
