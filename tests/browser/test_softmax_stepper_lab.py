"""The stepper in a real JupyterLab: Run All, both directions between browser and Python, keys, axe."""

import pytest

pytestmark = pytest.mark.browser

SHOW = """
import flashlab as fl
q, k, v = fl.data.tiny()
stepper = fl.SoftmaxStepper(q[5] @ k.T, v)
stepper
"""
ASK = "print('Python has step', stepper.step, stepper.knock_out)"
TELL = "stepper.step = 6"


def output(page, index):
    return page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-OutputArea-output")


@pytest.fixture
def notebook(lab_server, new_page):
    """A notebook that shows the stepper, asks for its step and sets it, after Run All."""
    page = new_page(viewport={"width": 1100, "height": 1500})  # axe judges no colours out of sight
    lab_server.open(page, "stepper.ipynb", SHOW, ASK, TELL.replace("6", "0"), TELL)
    lab_server.command(page, "notebook:run-cell-and-select-next")
    page.locator(".fl-stepper .title").wait_for(timeout=60_000)
    return page


def test_after_run_all_the_stepper_is_alive(lab_server, new_page):
    page = new_page()
    lab_server.open(page, "all.ipynb", SHOW, ASK)
    lab_server.command(page, "notebook:run-all-cells")
    title = page.locator(".fl-stepper .title")
    title.wait_for(timeout=60_000)
    assert title.inner_text().startswith("Nothing seen yet")
    page.get_by_role("button", name="Step", exact=True).click()
    page.wait_for_function("document.querySelector('.fl-stepper .title').textContent.startsWith('Block 1')")


def test_python_hears_the_committed_step_and_the_switches_and_can_set_the_step(lab_server, notebook):
    page = notebook
    for n in (1, 2, 3):
        page.get_by_role("button", name="Step", exact=True).click()
        page.wait_for_function("n => +document.querySelector('.fl-stepper input').value === n", arg=n)
    page.get_by_label("do not convert the sum").check()
    lab_server.expect(page, 1, "Python has step 3 ['sum']")
    lab_server.run_cell(page, 3)
    page.wait_for_function(
        "document.querySelector('.fl-stepper .title').textContent.includes('all keys seen')"
    )


def test_keys_drive_the_stepper_and_not_the_notebook(lab_server, notebook):
    page = notebook
    scrub = page.locator(".fl-stepper input[type=range]")
    scrub.focus()
    before = page.locator(".jp-Notebook .jp-Cell.jp-mod-active").evaluate(
        "e => [...e.parentNode.children].indexOf(e)"
    )
    scrub.press("ArrowRight")
    page.wait_for_function("+document.querySelector('.fl-stepper input').value === 1")
    scrub.press("End")
    page.wait_for_function("+document.querySelector('.fl-stepper input').value === 6")
    after = page.locator(".jp-Notebook .jp-Cell.jp-mod-active").evaluate(
        "e => [...e.parentNode.children].indexOf(e)"
    )
    assert before == after
    assert page.locator(".jp-Notebook .jp-Cell").count() == 4


def test_axe_finds_nothing_in_the_widget_s_element_light_and_dark(lab_server, notebook, violations):
    page = notebook
    assert violations(page, within=".fl-stepper") == {}
    lab_server.command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_selector('body[data-jp-theme-light="false"]', state="attached")
    page.wait_for_function("getComputedStyle(document.querySelector('.fl-stepper')).colorScheme === 'dark'")
    page.wait_for_timeout(500)
    found = violations(page, within=".fl-stepper")
    lab_server.command(page, "apputils:change-theme", theme="JupyterLab Light")
    page.wait_for_selector('body[data-jp-theme-light="true"]', state="attached")
    assert found == {}


def test_axe_finds_what_is_planted_in_the_widget_s_element(notebook, violations):
    notebook.evaluate(
        """() => document.querySelector('.fl-stepper').insertAdjacentHTML('beforeend',
        '<button></button><input type="range"><p style="color:#bbb;background:#fff">faint</p>')"""
    )
    assert {"button-name", "label", "color-contrast"} <= set(violations(notebook, within=".fl-stepper"))


def test_a_step_set_by_python_ends_the_play_and_wins(lab_server, notebook):
    page = notebook
    page.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_function("+document.querySelector('.fl-stepper input').value > 0.2")
    lab_server.run_cell(page, 3)
    page.wait_for_function("+document.querySelector('.fl-stepper input').value === 6")
    page.get_by_role("button", name="Play", exact=True).wait_for()
    lab_server.expect(page, 1, "Python has step 6 []")
