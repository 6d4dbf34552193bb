// What scrolls sideways must be reached from the keyboard.
addEventListener("DOMContentLoaded", () => document.querySelectorAll("pre").forEach((box) => { box.tabIndex = 0; }));
