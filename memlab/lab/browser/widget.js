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
