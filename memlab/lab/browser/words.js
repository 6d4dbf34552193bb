// Words for numbers, as memlab/units.py has them; names and colours of categories; elements.

function threeDigits(value) {
  const size = Math.abs(value), digits = size < 9.995 ? 2 : size < 99.95 ? 1 : 0, scaled = value * 10 ** digits;
  const even = scaled % 1 === 0.5 && Math.floor(scaled) % 2 === 0 ? Math.floor(scaled) : Math.round(scaled);
  return (even / 10 ** digits).toFixed(digits); // halves to the even side, as Python does
}

function formatBytes(count) {
  const size = Math.abs(count);
  for (const [factor, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (size >= factor || size >= (999.5 * factor) / 1024) {
      return `${count < 0 ? "-" : ""}${threeDigits(size / factor)} ${unit}`;
    }
  }
  return `${count} B`;
}

function formatSeconds(seconds) {
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
const MEANINGS = {
  parameter: "the weights",
  buffer: "what a module keeps beside its weights, as running means",
  "optimizer state": "what the optimizer keeps for each weight, as Adam's two averages",
  gradient: "of the weights, from backward until zero_grad",
  input: "batches and their targets",
  "held over": "still alive from an earlier step, or kept although no backward will use it",
  communication: "buffers of what ranks send to each other",
  activation: "computed by forward and kept for backward",
  "recomputed activation": "computed once more in backward, by a checkpoint",
  temporary: "needed for a moment, as inside one operator",
  workspace: "of cuBLAS and other libraries, and what blocks are rounded up by",
};
const COLORS = { "recomputed activation": "recomputed", "held over": "held" };
const colorOf = (category) => color(COLORS[category] ?? category);
const UNCOUNTED = ["optimizer state", "held over", "communication", "workspace"];
const plural = (name) => name === "temporary" ? "temporaries" : UNCOUNTED.includes(name) ? name : `${name}s`;

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

const NAMES = /(?<=[._])(?=\D)/; // where the name of a module may be broken, and no number

// A text, for an element, that may be broken at these places
const breakable = (text, places) => text.split(places).flatMap((part) => [part, element("wbr")]);

// The name that modules of one kind share: "blocks.*.mlp"
function alike(name) {
  return name.replace(/\b\d+\b/g, "*");
}
