// A panel on a page without Python: every step was predicted beforehand, and the controls choose one of them. Behind
// picture.js, whose names it uses.

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

// What many steps have in common was packed once: {"$": 3} is the fourth of the shared lists.
function whole(value, shared) {
  if (Array.isArray(value) || value === null || typeof value !== "object") return value;
  if ("$" in value) return shared[value.$];
  const made = Object.fromEntries(Object.entries(value).map(([name, part]) => [name, whole(part, shared)]));
  if (made.microseconds) {
    let now = 0;
    made.seconds = made.microseconds.map((passed) => (now += passed) / 1e6);
  }
  return made;
}

function control(axis, id, value, changed) {
  const label = element("label", { for: id }, axis.label);
  if (axis.kind === "slider") {
    const shown = element("output", { for: id });
    const input = element("input", { id, type: "range", min: 0, max: axis.values.length - 1, step: 1, list: `${id}-values` });
    const values = element("datalist", { id: `${id}-values` }, ...axis.values.map((text, place) => element("option", { value: place, label: text })));
    const ends = element("small", { class: "memlab-quiet" }, axis.values.length > 8 ? `${axis.values[0]} to ${axis.values.at(-1)}, ${axis.values.length} values` : axis.values.join(" · "));
    input.value = value;
    const show = () => {
      shown.textContent = axis.values[input.value];
      input.setAttribute("aria-valuetext", axis.values[input.value]);
    };
    show();
    input.addEventListener("input", () => { show(); changed(); });
    return { row: element("div", { class: "memlab-row" }, label, shown, input, values, ends), read: () => Number(input.value) };
  }
  if (axis.kind === "switch") {
    const input = element("input", { id, type: "checkbox", onchange: changed });
    input.checked = value === 1;
    return { row: element("div", { class: "memlab-row" }, label, input), read: () => Number(input.checked) };
  }
  const input = element("select", { id, onchange: changed });
  axis.values.forEach((text, number) => input.append(new Option(text, number, false, number === value)));
  return { row: element("div", { class: "memlab-row" }, label, input), read: () => input.selectedIndex };
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

async function start(panel) {
  const grid = await unpack(panel.dataset.grid);
  const begun = linked(panel.id, grid.axes);
  const box = element("div");
  const show = () => {
    const places = controls.map((one) => one.read());
    const number = grid.axes.reduce((sum, axis, i) => sum * axis.values.length + places[i], 0);
    picture.show(whole(grid.shown[number], grid.shared));
    picture.showSentence(grid.sentences[number]);
    return places;
  };
  const moved = () => {
    const query = new URLSearchParams(show().map((place, i) => [grid.axes[i].name, grid.axes[i].values[place]]));
    history.replaceState(null, "", `#${panel.id}?${query}`);
  };
  const controls = grid.axes.map((axis, i) => control(axis, `${panel.id}-${axis.name}`, begun[i], moved));
  const fields = element("fieldset", { class: "memlab-left" }, element("legend", {}, grid.legend), ...controls.map((one) => one.row));
  panel.replaceChildren(element("div", { class: "memlab-body" }, fields, element("div", { class: "memlab-right" }, box)));
  const picture = new Picture(box);
  picture.showCode(grid.code);
  show();
  if (location.hash.slice(1).split("?")[0] === panel.id) panel.scrollIntoView();
}

const startAll = () => document.querySelectorAll(".memlab[data-grid]").forEach(start);
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startAll);
else startAll();
