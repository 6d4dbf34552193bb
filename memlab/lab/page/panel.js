// A memlab panel without Python: every picture was predicted beforehand, and a control chooses one of them.
(() => {
  "use strict";

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return JSON.parse(await new Response(stream).text());
  }

  // Of its curves a packed picture has the y coordinates, and the number of a table with the x coordinates.
  function whole(picture, tables) {
    return picture.replace(/points="(\d+):([^"]*)"/g, (_, number, heights) => {
      const xs = tables[number].split(" ");
      return `points="${heights.split(" ").map((y, place) => `${xs[place]},${y}`).join(" ")}"`;
    });
  }

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function control(axis, id, value, changed) {
    const label = element("label", { for: id }, axis.label);
    let input, read;
    if (axis.kind === "slider") {
      const shown = element("output", { for: id });
      input = element("input", { id, type: "range", min: 0, max: axis.values.length - 1, step: 1 });
      input.value = value;
      const show = () => {
        shown.textContent = axis.values[input.value];
        input.setAttribute("aria-valuetext", axis.values[input.value]);
      };
      show();
      input.addEventListener("input", () => { show(); changed(); });
      read = () => Number(input.value);
      return { row: element("div", { class: "memlab-row" }, label, input, shown), read };
    }
    if (axis.kind === "switch") {
      input = element("input", { id, type: "checkbox" });
      input.checked = value === 1;
      read = () => Number(input.checked);
    } else {
      input = element("select", { id });
      axis.values.forEach((text, number) => input.append(new Option(text, number, false, number === value)));
      read = () => input.selectedIndex;
    }
    input.addEventListener("change", changed);
    return { row: element("div", { class: "memlab-row" }, label, input), read };
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
    const picture = element("div", { class: "memlab-picture" });
    const sentence = element("p", { class: "memlab-sentence", "aria-live": "polite" });
    const begun = linked(panel.id, grid.axes);
    const show = () => {
      const places = controls.map((one) => one.read());
      const number = grid.axes.reduce((sum, axis, i) => sum * axis.values.length + places[i], 0);
      picture.innerHTML = whole(grid.pictures[number], grid.tables);
      sentence.textContent = grid.sentences[number];
      return places;
    };
    const moved = () => {
      const query = new URLSearchParams(show().map((place, i) => [grid.axes[i].name, grid.axes[i].values[place]]));
      history.replaceState(null, "", `#${panel.id}?${query}`);
    };
    const controls = grid.axes.map((axis, i) => control(axis, `${panel.id}-${axis.name}`, begun[i], moved));
    const rows = element("div", {}, ...controls.map((one) => one.row));
    const fields = element("fieldset", {}, element("legend", {}, grid.legend), rows);
    panel.replaceChildren(picture, fields, sentence);
    show();
    if (location.hash.slice(1).split("?")[0] === panel.id) panel.scrollIntoView();
  }

  const startAll = () => document.querySelectorAll(".memlab-panel[data-grid]").forEach(start);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startAll);
  else startAll();
})();
