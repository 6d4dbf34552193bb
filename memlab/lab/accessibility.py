"""Repairs, on the page, of what ipywidgets lacks for keyboards and screen readers.

A slider's handle, which takes the keys, lacks the name that stands beside the slider, and where values double it tells
an index in place of the value; Tab stops for nothing at the text beside it. And a notebook takes keys that a widget
waits for: arrows move to another cell, letters change or delete it. In a widget's HTML only handlers of events run as
scripts: this one runs when the style has come to the page.
"""

# Modified keys, as Ctrl+S, stay the notebook's: https://lumino.readthedocs.io, CommandRegistry.processKeydownEvent.
_SCRIPT = """
const box = this.closest('.NAME');
const say = () => box.querySelectorAll('.widget-slider').forEach(slider => {
  const handle = slider.querySelector('.noUi-handle'), told = slider.querySelector('.widget-readout');
  const set = (name, text) => handle.getAttribute(name) === text || handle.setAttribute(name, text);
  if (handle && told) {
    set('aria-label', slider.querySelector('label').textContent);
    set('aria-valuetext', told.textContent);
    told.contentEditable === 'true' && (told.contentEditable = 'false');
  }
});
new MutationObserver(say).observe(box, {childList: true, subtree: true, attributeFilter: ['aria-valuetext']});
say();
const keep = event => event.target.toggleAttribute('data-lm-suppress-shortcuts',
  !(event.ctrlKey || event.metaKey || event.altKey || event.shiftKey));
['focusin', 'keydown', 'keyup'].forEach(kind => box.addEventListener(kind, keep));
"""


def access(name: str) -> str:
    """HTML that a box with this class needs once."""
    return f'<style onload="{_SCRIPT.replace("NAME", name)}">.{name} {{}}</style>'
