"""The drawing of methods of fine-tuning: a bar for what was measured, a ring for what is predicted."""

from memlab import drawings

FOUND = [drawings.Method("thin", 64, 20_100_000_000, 20_300_000_000), drawings.Method("all", 3_000, 40_000_000_000, 0)]


def test_bars_are_what_was_measured_and_rings_what_is_predicted():
    (axes,) = drawings.methods(FOUND, note="one card", title="a title").axes
    assert [bar.get_width() for bar in axes.patches] == [20.1, 40.0]
    assert axes.collections[0].get_offsets().tolist() == [[20.3, 0.0], [0.0, 1.0]]
    assert {text.get_text() for text in axes.texts} >= {"64", "20.1 GB", "3,000", "40.0 GB"}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["thin", "all"]
