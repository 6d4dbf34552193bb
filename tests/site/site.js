// What scrolls sideways must be reached from the keyboard.
addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("pre, .table-wrapper")) box.tabIndex = 0;
});
