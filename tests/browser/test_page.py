"""A panel without Python, opened from a folder in a real browser and used by mouse, keyboard and touch."""

import os

import pytest
from playwright.sync_api import expect

from memlab import Guess, Lab, measure, predict
from memlab.lab.claim import VOTE
from memlab.lab.page import choose_axes, form, page, predict_grid, record
from memlab.run import Run
from memlab.units import format_bytes
from memlab.vgpu import find_card
from memlab.vgpu.gpu import VirtualGpu
from tests.browser.axe import findings
from tests.browser.jupyter import browser_page, find_chromium
from tests.lab.loops import train

pytestmark = pytest.mark.skipif(
    not find_chromium() and not os.environ.get("CI"), reason="there is no Chromium to drive"
)
TOO_WIDE = 50_000  # its weights fit a T4, its gradients do not
STEPS = 30
QUESTIONS = {
    "size": Guess("How much <is> it?", tolerance=0.1),
    "choice": Guess("Which is it?", choices=["weights", "activations"]),
}
TRUTHS = {"size": 4 * 2**30, "choice": "weights"}


@pytest.fixture(scope="module")
def session():
    lab = Lab(train, batch_size=(1, 64), optimizer=["SGD", "Adam"], width=[16, TOO_WIDE], steps=STEPS, title="Try it")
    return lab.session


@pytest.fixture(scope="module")
def address(session, tmp_path_factory):
    file = tmp_path_factory.mktemp("site") / "lab.html"
    runs = [record(session), record(session, batch_size=64)]
    for run in runs:
        run["samples"] = [(0, ""), (2, "guesses: abc"), (20, "guesses: def")]
    whole = page(predict_grid(session, choose_axes(session, ["T4", "H100"], most=24), runs=runs))
    forms = [form(question.to_plain() | {"actual": TRUTHS[name]}) for name, question in QUESTIONS.items()]
    claim = f"<p>“It rains”</p><details><summary>{VOTE}</summary><p><b>False.</b> It is dry.</p></details>"
    other = "<p>Before.</p><details><summary>A hint</summary><p>Halve it.</p></details>"  # no claim
    file.write_text(whole.replace("</main>", f"{''.join(forms)}{claim}{other}</main>"), encoding="utf-8")
    return file.as_uri()


@pytest.fixture(scope="module")
def opened():
    with browser_page(1280, 720) as opened:
        opened.faults = []
        opened.on("pageerror", lambda error: opened.faults.append(str(error)))
        yield opened
        assert opened.faults == []


@pytest.fixture
def browser(opened, address):
    opened.set_viewport_size({"width": 1280, "height": 720})
    opened.goto("about:blank")
    opened.goto(address)
    opened.locator(".memlab-drawing").wait_for()
    return opened


def sentence(browser):
    return browser.locator(".memlab-sentence").inner_text()


def peak(gpu, **settings):
    return f"peak {format_bytes(predict(train, gpu=gpu, **settings).peak_allocated)}"


def answer(browser):
    return browser.locator(".memlab-answer").inner_text()


def point_at_the_peak(browser):
    box = browser.locator(".memlab-chart .memlab-dot").bounding_box()
    browser.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)


def choose_batch(browser, key):
    browser.get_by_role("slider", name="batch size").focus()
    browser.keyboard.press(key)


def test_it_shows_what_was_predicted(browser):
    trace = predict(train, gpu="T4", batch_size=8)
    assert browser.locator(".memlab-number").inner_text() == format_bytes(trace.peak_allocated)
    assert peak("T4", batch_size=8) in sentence(browser)
    for category in trace.timeline:
        expect(browser.get_by_role("button", name=category.plural, exact=True)).to_be_visible()


def test_it_answers_to_the_keyboard(browser):
    choose_batch(browser, "End")
    assert peak("T4", batch_size=64) in sentence(browser)
    assert browser.get_by_role("slider", name="batch size").get_attribute("aria-valuetext") == "64"
    browser.get_by_role("combobox", name="optimizer").select_option("Adam")
    assert peak("T4", batch_size=64, optimizer="Adam") in sentence(browser)
    browser.get_by_role("combobox", name="predict for").select_option("H100")
    assert "H100" in sentence(browser)


def test_a_slider_says_which_values_it_has(browser):
    expect(browser.locator(".memlab-row").filter(has_text="batch size").locator("small")).to_have_text("1, 8, 64")


def test_the_address_carries_the_settings(browser, address):
    browser.goto("about:blank")
    browser.goto(f"{address}#lab-try-it?batch_size=64&optimizer=Adam&gpu=H100")
    browser.locator(".memlab-drawing").wait_for()
    assert peak("H100", batch_size=64, optimizer="Adam") in sentence(browser)
    choose_batch(browser, "Home")
    assert "batch_size=1&optimizer=Adam" in browser.url


def test_an_odd_address_is_where_it_begins(browser, address):
    browser.goto("about:blank")
    browser.goto(f"{address}#lab-try-it?batch_size=63&optimizer=%3Cb%3E")
    browser.locator(".memlab-drawing").wait_for()
    assert peak("T4", batch_size=8) in sentence(browser)


def test_pointing_at_the_peak_reads_the_tensors_that_are_alive_and_the_line_at_work(browser):
    trace = predict(train, gpu="T4", batch_size=8)
    point_at_the_peak(browser)
    said = answer(browser)
    assert f"alive: {format_bytes(trace.peak_allocated)}" in said
    assert "weight · 16 \N{MULTIPLICATION SIGN} 16 float32 · 1.00 KiB, the largest of 2" in said
    assert trace.peak_phase in said
    line = browser.locator(".memlab-code mark").inner_text()
    assert "backward" in line or "step" in line
    browser.mouse.move(5, 5)
    assert "Point at the chart" in answer(browser)


def test_the_chart_is_asked_by_keys_alone(browser):
    chart = browser.get_by_role("slider", name="moment of the step")
    chart.focus()
    browser.keyboard.press("Home")
    assert "start of the step" in answer(browser)
    assert chart.get_attribute("aria-valuenow") == "0"
    browser.keyboard.press("ArrowRight")
    assert "alive" in chart.get_attribute("aria-valuetext")
    browser.keyboard.press("Enter")
    peak_at = predict(train, gpu="T4", batch_size=8).peak_index
    assert chart.get_attribute("aria-valuenow") == str(peak_at)
    browser.keyboard.press("Escape")
    assert "Point at the chart" in answer(browser)


def test_a_click_keeps_the_place_and_a_second_one_lets_go(browser):
    point_at_the_peak(browser)
    browser.mouse.down()
    browser.mouse.up()
    kept = answer(browser)
    browser.mouse.move(5, 5)
    assert answer(browser) == kept
    point_at_the_peak(browser)
    browser.mouse.down()
    browser.mouse.up()
    browser.mouse.move(5, 5)
    assert "Point at the chart" in answer(browser)


def test_a_category_is_shown_alone(browser):
    assert browser.locator(".memlab-chart polygon").count() > 2
    button = browser.get_by_role("button", name="parameters", exact=True)
    button.click()
    assert browser.locator(".memlab-chart polygon").count() == 1
    assert button.get_attribute("aria-pressed") == "true"
    point = browser.locator(".memlab-chart").bounding_box()
    browser.mouse.move(point["x"] + point["width"] / 2, point["y"] + 100)
    assert "of parameters" in answer(browser)
    button.click()
    assert browser.locator(".memlab-chart polygon").count() > 2


def test_a_is_pinned_and_b_is_told_apart_from_it_by_category(browser):
    browser.get_by_role("button", name="Pin as A").click()
    browser.get_by_role("combobox", name="optimizer").select_option("Adam")
    plain, adam = (predict(train, gpu="T4", optimizer=name) for name in ("SGD", "Adam"))
    rows = browser.locator(".memlab-difference tr").all_inner_texts()
    more = adam.by_category["optimizer state"] - plain.by_category.get("optimizer state", 0)
    assert f"optimizer state\t+{format_bytes(more)}" in rows
    assert rows[-1] == "all else\tsame"
    share = round(100 * adam.peak_allocated / plain.peak_allocated)
    expect(browser.locator(".memlab-facts")).to_contain_text(f"{share}% of A")
    expect(browser.locator(".memlab-settings")).to_contain_text("beside A: optimizer SGD")
    assert browser.locator(".memlab-chart .memlab-other").count() == 1
    texts = browser.locator(".memlab-chart text").all_text_contents()
    assert f"A {format_bytes(plain.peak_allocated)}" in texts
    assert f"B {format_bytes(adam.peak_allocated)}" in texts
    browser.get_by_role("button", name="Unpin A").click()
    assert browser.locator(".memlab-chart .memlab-other").count() == 0


def test_the_axis_is_time_or_events_and_says_which(browser):
    texts = browser.locator(".memlab-chart text")
    expect(texts.filter(has_text="time in one step, estimated on T4")).to_have_count(1)
    browser.get_by_role("button", name="by event").click()
    expect(texts.filter(has_text="events of one step")).to_have_count(1)
    browser.get_by_role("button", name="by time").click()
    expect(texts.filter(has_text="time in one step")).to_have_count(1)


def test_out_of_memory_shows_the_request_that_failed(browser):
    browser.get_by_role("combobox", name="width").select_option(str(TOO_WIDE))
    oom = predict(train, gpu="T4", width=TOO_WIDE).oom
    expect(browser.locator(".memlab-number")).to_have_text("out of memory")
    drawn, limit = browser.locator(".memlab-failed").bounding_box(), browser.locator("line.memlab-limit").bounding_box()
    assert drawn["y"] < limit["y"] < drawn["y"] + drawn["height"]  # it crosses the line
    asked = f"out of memory: {format_bytes(oom.asked)} asked"
    texts = browser.locator(".memlab-chart text")
    expect(texts.filter(has_text=asked)).to_have_count(1)
    expect(texts.filter(has_text="set-up")).to_have_count(1)  # where the weights come to the card, in the first step
    for text in texts.all():  # the card's name among them
        box = text.bounding_box()
        beside = box["x"] + box["width"] <= drawn["x"] or box["x"] >= drawn["x"] + drawn["width"]
        assert beside or box["y"] + box["height"] <= drawn["y"] or box["y"] >= drawn["y"] + drawn["height"]
    endless = Run(train, {"width": TOO_WIDE}, VirtualGpu("T4", is_endless=True)).complete().peak_allocated
    more = format_bytes(endless - find_card("T4").room)
    facts = f"with room enough (dashed): {format_bytes(endless)} · {more} over the T4"
    expect(browser.locator(".memlab-facts")).to_contain_text(facts)
    said = browser.locator(".memlab-sentence").inner_text()
    assert f"With room enough it would take {format_bytes(endless)}." in said
    browser.get_by_role("button", name="parameters", exact=True).click()  # alone, without what would have been
    expect(browser.locator(".memlab-chart .memlab-other")).to_have_count(0)
    expect(browser.get_by_role("button", name="parameters", exact=True)).to_have_attribute("aria-pressed", "true")


def test_present_mode_reveals_the_questions_of_the_page_at_a_key(browser):
    browser.get_by_role("button", name="Present").click()
    asked = browser.locator(".memlab-question")
    asked_of = [
        f"{question.question} ({', '.join(question.choices)})" if question.choices else question.question
        for question in QUESTIONS.values()
    ]
    texts = [*asked_of, "Claim: “It rains”"]
    told = [None, "It is 4.00 GiB.", None, "It is weights.", None, "False. It is dry."]
    for text, answer in zip([text for text in texts for _ in range(2)], told, strict=True):
        browser.keyboard.press("q")
        expect(asked.locator("p").first).to_have_text(text)
        expect(asked.locator("b")).to_have_text([answer] if answer else [])
    browser.keyboard.press("q")
    expect(asked).to_be_empty()
    browser.keyboard.press("q")
    browser.keyboard.press("Escape")
    expect(asked).to_be_empty()
    expect(browser.get_by_role("button", name="Question")).to_have_count(0)  # only there


@pytest.mark.parametrize("size", [(1280, 720), (853, 480)], ids=["projector", "150%"])
def test_what_is_compared_and_asked_hides_nothing_of_what_is_presented(browser, size):
    browser.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    browser.get_by_role("button", name="Pin as A").click()
    choose_batch(browser, "End")
    browser.get_by_role("button", name="Present").click()
    chart = browser.locator(".memlab-chart").bounding_box()
    for place in (None, 0.3, 0.8):
        if place:
            browser.mouse.move(chart["x"] + place * chart["width"], chart["y"] + chart["height"] / 2)
            expect(browser.locator(".memlab-asked")).to_have_count(1)
        for part in (".memlab-chart", ".memlab-head", ".memlab-legend"):
            assert not overlap(browser.locator(".memlab-aside").bounding_box(), browser.locator(part).bounding_box())
        assert browser.locator(".memlab-chart").bounding_box() == chart  # nothing moves below the pointer
    browser.keyboard.press("Escape")


def overlap(one, other):
    beside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
    return not beside and one["y"] < other["y"] + other["height"] and other["y"] < one["y"] + one["height"]


def test_the_button_that_stops_a_prediction_moves_nothing(browser):
    before = browser.locator(".memlab-chart").bounding_box()
    browser.locator(".memlab-stop").evaluate("button => { button.hidden = false; }")
    expect(browser.get_by_role("button", name="Stop predicting")).to_be_visible()
    assert browser.locator(".memlab-chart").bounding_box() == before


@pytest.mark.parametrize(("size", "zoom"), [((1280, 720), 1), ((853, 480), 1.5)], ids=["projector", "150%"])
def test_it_is_presented_as_large_as_the_window(browser, address, size, zoom):
    context = browser.context.browser.new_context(
        viewport={"width": size[0], "height": size[1]}, device_scale_factor=zoom, offline=True
    )
    page = context.new_page()
    page.goto(address)
    page.get_by_role("button", name="Present").focus()
    page.keyboard.press("Enter")
    whole = page.locator(".memlab-present").bounding_box()
    assert (whole["x"], whole["y"], whole["width"], whole["height"]) == (0, 0, *size)
    assert float(page.locator(".memlab-drawing").get_attribute("font-size")) * zoom == 24  # of the projector's pixels
    for part in (
        page.get_by_role("slider", name="batch size"),
        page.locator(".memlab-chart"),
        page.get_by_role("button", name="Leave"),
    ):
        box = part.bounding_box()
        assert box["x"] >= 0
        assert box["y"] >= 0
        assert box["x"] + box["width"] <= size[0]
        assert box["y"] + box["height"] <= size[1] + 1
    page.keyboard.press("ArrowRight")  # a slider takes the arrow keys
    page.keyboard.press("ArrowRight")
    assert peak("T4", batch_size=64) in page.locator(".memlab-sentence").text_content()
    page.keyboard.press("Escape")
    assert page.locator(".memlab-present").count() == 0
    context.close()


def test_it_answers_to_touch_on_a_small_screen(browser, address):
    context = browser.context.browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, offline=True)
    page = context.new_page()
    page.goto(address)
    slider = page.get_by_role("slider", name="batch size")
    box = slider.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
    assert peak("T4", batch_size=64) in sentence(page)
    chart = page.locator(".memlab-chart")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 60)
    assert "alive:" in answer(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_a_part_of_the_step_is_drawn_large(browser):
    chart = browser.locator(".memlab-chart")
    box = chart.bounding_box()
    left, right = box["x"] + 0.6 * box["width"], box["x"] + 0.8 * box["width"]
    whole = chart.locator("polyline.memlab-line").get_attribute("points")
    browser.mouse.move(left, box["y"] + 90)
    browser.mouse.down()
    browser.mouse.move(right, box["y"] + 90)
    browser.mouse.up()
    assert chart.locator("polyline.memlab-line").get_attribute("points") != whole
    assert chart.locator("text").filter(has_text="0 s").count() == 0  # the axis begins later
    browser.get_by_role("button", name="Whole step").click()
    assert chart.locator("polyline.memlab-line").get_attribute("points") == whole
    chart.focus()
    browser.keyboard.press("Enter")
    browser.keyboard.press("+")
    assert chart.locator("polyline.memlab-line").get_attribute("points") != whole
    browser.keyboard.press("-")
    assert chart.locator("polyline.memlab-line").get_attribute("points") == whole


# Recorded runs


def run_button(browser):
    return browser.get_by_role("button", name="Run (recorded)")


def number(browser):
    return browser.locator(".memlab-number").inner_text()


def test_a_recorded_run_is_played_and_ends_at_the_measured_step(browser):
    assert "recorded on CPU" in browser.locator(".memlab-left small").last.inner_text()
    run_button(browser).focus()
    browser.keyboard.press("Enter")
    expect(browser.get_by_role("button", name="Stop")).to_be_visible()
    expect(browser.locator(".memlab-cursor line")).to_have_count(1)  # it goes through the step
    early = browser.locator(".memlab-loss").inner_text()
    expect(browser.locator(".memlab-sample")).to_have_text("guesses: abc")
    expect(browser.locator(".memlab-sample")).to_have_text("guesses: def")
    expect(run_button(browser)).to_be_visible()
    trace = measure(train, steps=STEPS)
    assert float(browser.locator(".memlab-loss").inner_text()) == pytest.approx(trace.losses[-1], rel=0.01)
    assert float(early) > trace.losses[-1]
    expect(browser.locator(".memlab-run")).to_contain_text("loss, recorded run, batch 8")
    assert number(browser) == format_bytes(trace.peak_allocated)
    expect(browser.locator(".memlab-facts")).to_contain_text("recorded on CPU")
    expect(browser.locator(".memlab-facts")).to_contain_text("predicted (dashed), without workspace:")
    assert browser.locator(".memlab-chart .memlab-other").count() == 1  # the outline
    assert sentence(browser).startswith("Peak ")


def test_a_moved_control_goes_back_to_predictions(browser):
    run_button(browser).click()
    expect(browser.locator(".memlab-loss")).to_be_visible()
    choose_batch(browser, "End")
    browser.wait_for_timeout(700)
    assert peak("T4", batch_size=64) in sentence(browser)
    assert browser.locator(".memlab-loss").count() == 0
    expect(run_button(browser)).to_be_visible()


def test_a_run_is_stopped(browser):
    run_button(browser).click()
    browser.get_by_role("button", name="Stop").click()
    browser.wait_for_timeout(700)
    assert peak("T4", batch_size=8) in sentence(browser)
    assert browser.locator(".memlab-loss").count() == 0


def test_the_run_nearest_to_the_controls_is_played_and_they_move_to_it(browser):
    browser.get_by_role("combobox", name="optimizer").select_option("Adam")
    choose_batch(browser, "End")
    run_button(browser).click()
    expect(browser.locator(".memlab-run")).to_contain_text("recorded run, batch 64")
    assert number(browser) == format_bytes(measure(train, steps=STEPS, batch_size=64).peak_allocated)
    assert browser.get_by_role("combobox", name="optimizer").input_value() == "SGD"
    assert "batch_size=64&optimizer=SGD" in browser.url


def test_a_page_without_runs_has_no_button_for_them(browser, session, tmp_path):
    file = tmp_path / "lab.html"
    file.write_text(page(predict_grid(session, choose_axes(session, ["T4"], most=12))), encoding="utf-8")
    browser.goto(file.as_uri())
    browser.locator(".memlab-drawing").wait_for()
    assert run_button(browser).count() == 0


# Guesses


def guess_at(browser, name, *answers):
    """Make guesses, in MiB or by choice; what is said in the end."""
    box = browser.locator("[data-guess]").nth(list(QUESTIONS).index(name))
    expect(box.locator("legend")).to_have_text(QUESTIONS[name].question)
    for answer in answers:
        if name == "choice":
            box.get_by_label(answer).check()
        else:
            box.get_by_label("your guess").fill(str(answer))
            box.get_by_label("unit").select_option("MiB")
        box.get_by_role("button", name="Guess").focus()
        browser.keyboard.press("Enter")
    return box.get_by_role("status").inner_text()


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        *(("size", count) for count in (0.25, 3000, 3687, 4096, 4100, 5000)),
        ("choice", "weights"),
        ("choice", "activations"),
    ],
)
def test_a_guess_is_judged_in_the_words_of_a_notebook(browser, monkeypatch, tmp_path, name, answer):
    monkeypatch.setenv("MEMLAB_LOGBOOK", str(tmp_path / "logbook.jsonl"))
    said = guess_at(browser, name, answer)
    guess = Guess(QUESTIONS[name].question, choices=QUESTIONS[name].choices, tolerance=QUESTIONS[name].tolerance)
    guess.answer(answer if name == "choice" else f"{answer} MiB")
    assert said == str(guess.reveal(TRUTHS[name])).partition(" Your score")[0]


def test_a_second_guess_comes_late(browser):
    once = guess_at(browser, "size", 3000)
    assert guess_at(browser, "size", 3000) == once
    late = "4.00 GiB does not count any more, because the answer has been told."
    assert guess_at(browser, "size", 4096) == f"{late} {once}"


def test_nothing_is_told_before_a_guess(browser):
    box = browser.locator("[data-guess]").first
    assert "4.00" not in box.inner_text()
    box.get_by_role("button", name="Guess").click()
    assert box.get_by_role("status").inner_text() == ""


def test_axe_finds_nothing_serious_before_a_run_and_after_it(browser):
    assert list(findings(browser)) == []
    run_button(browser).click()
    guess_at(browser, "size", 3000)
    guess_at(browser, "choice", "weights")
    assert list(findings(browser)) == []
