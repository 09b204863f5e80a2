"""The page in a real browser: it loads from disk alone, answers, and shows the frame's numbers."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coop_cmp.report.page.build import build
from coop_cmp.report.page.details import TEMPERATURES
from coop_cmp.report.summary import mean_text
from coop_cmp.runs import load, read_predictions
from coop_cmp.runs.frame import find_runs
from coop_cmp.runs.outputs import image_numbers
from tests.page_runs import NASTY, store_many

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver (chromium-driver)"
)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,900")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def frame(folder):
    store_many(folder / "output")
    return load(folder / "output")


@pytest.fixture(scope="module")
def browser(folder, frame):
    Image.new("L", (20, 20)).save(folder / "black.png")
    files = {number: str(folder / "black.png") for number in image_numbers(map(str, range(200)))}
    text = build(find_runs(folder / "output")[0], NASTY, images=lambda run: files)
    (folder / "page.html").write_text(text, encoding="utf-8")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    saving = {"behavior": "allow", "downloadPath": str(folder)}
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", saving)
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, folder):
    browser.get((folder / "page.html").as_uri())
    wait(browser, lambda d: d.execute_script("return document.body.dataset.ready"))
    return browser


def wait(page, condition):
    return WebDriverWait(page, 60).until(condition)


def choose_option(page, name, value):
    Select(page.find_element(By.NAME, name)).select_by_visible_text(value)


def titles(page):
    return [found.text for found in page.find_elements(By.CSS_SELECTOR, "#table tbody th button")]


def cell(page, row, metric):
    """The text of a cell without the change below it."""
    found = page.find_elements(By.CSS_SELECTOR, f"#table tbody [data-metric={metric}]")
    return found[row].text.split("\n")[0]


def digits_at_4_shots(frame):
    chosen = frame[(frame["dataset"] == "Digits") & (frame["classes"] == "all")]
    return chosen[(chosen["shots"] == 4) & (chosen["trainer"] == "CoOp")]


def test_it_loads_without_errors_and_without_the_network(page):
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    ours = [event["request"]["url"] for event in sent if event["documentURL"][:5] == "file:"]
    urls = {url.partition(":")[0] for url in ours}
    assert "file" in urls
    assert urls <= {"file", "data", "blob"}


def test_names_of_files_are_text_wherever_they_stand(page):
    assert page.execute_script("return window.harm") is None
    assert page.find_element(By.TAG_NAME, "h1").text == NASTY
    choose_option(page, "dataset", NASTY)
    assert titles(page) == ["CoOp"]
    chart = page.execute_script("return document.getElementById('class-gaps').textContent")
    assert "<b>bee</b>" in chart
    assert NASTY[:23] in chart
    assert page.find_elements(By.CSS_SELECTOR, "img[src=x], .plot b") == []


def test_filters_leave_the_rows_that_fit(page):
    choose_option(page, "dataset", "Digits")
    choose_option(page, "shots", "8")
    assert sorted(titles(page)) == [
        "CoOp",
        "CoOp + CMP, λ = 0.01",
        "CoOp + CMP, λ = 0.5",
        "ZeroshotCLIP",
    ]
    page.find_element(By.NAME, "words").send_keys("cmp 0.5")
    assert titles(page) == ["CoOp + CMP, λ = 0.5"]
    assert page.find_element(By.ID, "count").text.startswith("1 of ")
    words = page.find_element(By.NAME, "words")
    words.clear()
    words.send_keys("8shots/twin")
    assert titles(page) == ["CoOp + CMP, λ = 0.01", "CoOp + CMP, λ = 0.5"], "found by its folder"
    page.find_element(By.CSS_SELECTOR, "button[type=reset]").click()
    wait(page, lambda d: len(titles(d)) > 4)


def test_the_table_shows_the_numbers_of_the_frame(page, frame):
    runs = digits_at_4_shots(frame)
    choose_option(page, "dataset", "Digits")
    choose_option(page, "classes", "all")
    choose_option(page, "shots", "4")
    row = titles(page).index("CoOp")
    for metric in ("accuracy", "ece", "nll"):
        assert cell(page, row, metric) == mean_text(list(runs[metric]), metric)


def test_sorting_by_a_metric_orders_by_the_frame(page, frame):
    button = "[data-sort=ece]"
    for reverse in (False, True):
        page.find_element(By.CSS_SELECTOR, button).click()
        shown = [float(cell(page, k, "ece").split()[0]) for k in range(len(titles(page)))]
        means = sorted(100 * frame.groupby("group")["ece"].mean(), reverse=reverse)
        assert shown == pytest.approx(means, abs=0.0051)
    head = page.find_element(By.CSS_SELECTOR, f"th:has({button})")
    assert head.get_attribute("aria-sort") == "descending"


@pytest.mark.parametrize(
    ("interval", "shown"),
    [([0.65, 0.75], [41.9, 77.1]), ([0.0, 1.0], [38, 82]), ([None, None], [41.9, 72.1])],
)
def test_the_overview_shows_intervals_unless_they_are_far_longer_than_the_rest(
    page, interval, shown
):
    """Points at 50 (44 to 56) and 70 percent: 12 of room at most, a margin of 2.1 at least."""
    rows = [[0.5, 0.44, 0.56], [0.7, *interval]]
    found = page.execute_script(
        "arguments[0].forEach((row, i) => (page.rows[i].values.accuracy = row));"
        "return around('accuracy', [0, 1]);",
        rows,
    )
    assert found == pytest.approx(shown)


@pytest.mark.parametrize("chart", ["overview", "lambda-curve", "shots-curve"])
def test_no_two_points_or_curves_look_the_same(page, chart):
    looks = page.execute_script(
        "return document.getElementById(arguments[0]).data.filter(({ marker }) => marker)"
        ".map(({ line, marker }) => [marker.color, marker.symbol, line?.color, line?.dash].join())",
        chart,
    )
    assert len(looks) == len(set(looks)) > 1


def test_a_row_chosen_with_the_keyboard_is_cooled_by_the_slider(page, frame):
    runs = digits_at_4_shots(frame)
    for name, value in (("dataset", "Digits"), ("classes", "all"), ("shots", "4")):
        choose_option(page, name, value)
    place = titles(page).index("CoOp")
    page.find_elements(By.CSS_SELECTOR, "#table tbody th button")[place].send_keys(Keys.ENTER)
    wait(page, lambda d: d.find_element(By.ID, "detail-title").text == "Chosen row: CoOp")
    cooled = page.find_element(By.ID, "cooled")
    wait(page, lambda d: cooled.text == expected(runs, 1.0))
    slider = page.find_element(By.ID, "temperature")
    for _ in range(7):
        slider.send_keys(Keys.ARROW_RIGHT)
    assert cooled.text == expected(runs, TEMPERATURES[27])
    shown = page.execute_script("return document.getElementById('reliability').data[4].y")
    confidence = np.concatenate([softmax(run, TEMPERATURES[27])[0].max(1) for run in folders(runs)])
    assert shown == np.histogram(confidence, 10, (0, 1))[0].tolist()
    paths = [row.text.split()[0] for row in page.find_elements(By.CSS_SELECTOR, "#runs tbody tr")]
    assert paths == folders(runs)


def folders(runs):
    return list(runs.sort_values("seed")["directory"])


def softmax(folder, temperature):
    predictions = read_predictions(Path(folder, "predictions.npz"))
    odds = np.exp(predictions.logits.astype(float) / temperature)
    return odds / odds.sum(1, keepdims=True), predictions.labels


def expected(runs, temperature):
    """The words beside the slider, with the ECE and the NLL of each seed worked out by hand."""
    errors, losses = [], []
    for folder in folders(runs):
        probabilities, labels = softmax(folder, temperature)
        confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
        place = np.ceil(confidence * 10)
        gaps = [abs((confidence - right)[place == k].sum()) for k in range(1, 11)]
        errors.append(sum(gaps) / len(labels))
        losses.append(-np.log(probabilities[np.arange(len(labels)), labels]).mean())
    return f"{temperature:.2f}: ECE {100 * np.mean(errors):.2f} %, NLL {np.mean(losses):.3f}"


def test_curves_and_halves_are_drawn(page):
    choose_option(page, "dataset", "Digits")
    for chart in ("lambda-curve", "shots-curve", "halves-chart"):
        assert page.find_elements(By.CSS_SELECTOR, f"#{chart} .main-svg"), chart
    ticks = page.execute_script("return document.getElementById('lambda-curve').data[0].x")
    assert ticks == ["0.01", "0.5"]


def test_charts_are_saved_as_svg_and_their_data_as_csv(page, folder, frame):
    for kind, name in (("csv", "risk.csv"), ("svg", "risk.svg"), ("csv", "table.csv")):
        button = page.find_element(By.CSS_SELECTOR, f"[data-{kind}={name.split('.')[0]}]")
        page.execute_script("arguments[0].click()", button)
        wait(page, lambda _, name=name: (folder / name).exists())
        time.sleep(0.1)
    assert (folder / "risk.csv").read_text().startswith("coverage,error\n")
    assert (folder / "risk.svg").read_text(encoding="utf-8").lstrip().startswith("<svg")
    lines = (folder / "table.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == frame["group"].nunique() + 1


def test_the_theme_button_says_what_it_does_and_reaches_page_and_charts(page):
    def background():
        return page.execute_script(
            "return [getComputedStyle(document.body).backgroundColor,"
            "document.getElementById('risk')._fullLayout.paper_bgcolor]"
        )

    button, light = page.find_element(By.ID, "theme"), background()
    assert button.text == "Dark theme"
    button.click()
    assert button.text == "Light theme"
    dark = background()
    assert all(one != other for one, other in zip(light, dark, strict=True))


def test_it_fits_a_narrow_window_and_a_sheet_of_paper(page):
    page.set_window_size(520, 900)
    width = "return document.documentElement.scrollWidth - innerWidth"
    wait(page, lambda d: d.execute_script(width) <= 0)
    page.set_window_size(1300, 900)
    assert len(page.print_page()) > 10_000


def test_every_control_has_a_name(page):
    nameless = page.execute_script(
        "return [...document.querySelectorAll('button, input, select')].filter(e => !e.hidden && "
        "!(e.textContent.trim() && e.tagName === 'BUTTON') && !e.ariaLabel && !e.labels?.length)"
        ".map(e => e.outerHTML)"
    )
    assert nameless == []


def test_an_empty_overview_says_so_and_is_drawn_again(page):
    words = page.find_element(By.NAME, "words")
    words.send_keys("nothing-like-it")
    overview = page.find_element(By.ID, "overview")
    assert overview.text == "No row passes the filters."
    button = page.find_element(By.CSS_SELECTOR, "[data-csv=overview]")
    assert not button.is_displayed()
    assert overview.size["height"] < 80
    words.clear()
    words.send_keys("CoOp")
    wait(page, lambda d: "No row passes" not in overview.text)
    assert button.is_displayed()


def test_the_table_as_shown_is_latex(page):
    page.find_element(By.NAME, "words").send_keys("cmp 0.5 8")
    text = page.execute_script("return tableLatex(sorted(passing()))")
    assert r"CoOp + CMP, $\lambda$ = 0.5 & " in text
    assert text.count(r"\\") == 3, "a head, the values and their changes"
    assert r"\toprule" in text


def test_a_row_shows_its_training_and_its_most_confident_mistakes(page):
    page.find_element(By.NAME, "words").send_keys("cmp 0.5 8")
    page.find_element(By.CSS_SELECTOR, "#table tbody th button").click()
    wait(page, lambda d: "λ = 0.5" in d.find_element(By.ID, "detail-title").text)
    curves = page.execute_script("return document.getElementById('training').data")
    assert [(curve["name"], curve["y"]) for curve in curves] == [
        ("loss", [2, 1]),
        ("loss: cmp", [0.5, 0.25]),
        ("accuracy (%)", [60, 80]),
        ("penalised (%)", [40, 20]),
    ]
    mistakes = page.find_elements(By.CSS_SELECTOR, "#mistakes li")
    assert len(mistakes) == 12
    assert "% sure; is " in mistakes[0].text
    size = "return document.querySelector('#mistakes img').naturalWidth"
    wait(page, lambda d: d.execute_script(size) == 20)
