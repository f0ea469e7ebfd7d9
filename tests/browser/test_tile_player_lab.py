"""TilePlayer in a real JupyterLab: both directions, axe, frames beside a busy kernel."""

import pytest
from frame_times import too_slow
from test_tile_player_page import play_slowly

pytestmark = pytest.mark.browser

SHOW = """
import flashlab as fl
player = fl.TilePlayer.of(fl.Problem(Nq=1024))
player
"""
ASK = "print('Python has position', player.position, player.sync)"
TELL = "player.position = 4_460_544"
FAULT = """
def launch():
    raise RuntimeError("no such kernel")
fl.TilePlayer({"mine": launch})
"""
AFTER = "print('the notebook goes on')"
BUSY = "import time\nend = time.time() + 60\nwhile time.time() < end: pass"


def output(page, index):
    return page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-OutputArea-output")


def test_python_hears_the_position_and_sets_it_and_axe_is_content(lab_server, new_page, violations):
    page = new_page(viewport={"width": 1400, "height": 1700})
    lab_server.open(page, "player.ipynb", SHOW, ASK, TELL.replace("4_460_544", "0"), TELL, FAULT, AFTER)
    lab_server.command(page, "notebook:run-cell-and-select-next")
    page.locator(".fl-player .title").wait_for(timeout=60_000)
    assert page.locator(".fl-player .title").inner_text().startswith("FA2 moves 4.46 MB where")
    lab_server.run_cell(page, 2)
    page.wait_for_function("+document.querySelector('.fl-player input[type=range]').value === 0")
    page.get_by_role("button", name="Step", exact=True).click()
    lab_server.expect(page, 1, "Python has position 8192.0 bytes")
    lab_server.run_cell(page, 3)
    page.wait_for_function("[...document.querySelectorAll('.fl-player .now')].at(-1).textContent === 'Done'")
    assert violations(page, within=".fl-player") == {}
    for cell in (4, 5):
        lab_server.run_cell(page, cell)
    output(page, 4).get_by_text("mine could not be recorded. no such kernel.").wait_for()
    output(page, 5).get_by_text("the notebook goes on").wait_for()


def test_three_players_beside_a_busy_kernel_take_at_most_4_ms_of_script_and_20_ms_a_frame(
    lab_server, new_page
):
    page = new_page(viewport={"width": 1400, "height": 3000})
    lab_server.open(page, "three.ipynb", SHOW, "player", "player", BUSY)
    lab_server.command(page, "notebook:run-all-cells")
    page.wait_for_function("document.querySelectorAll('.fl-player .title').length === 3", timeout=60_000)
    for one in page.locator(".fl-player").all():
        play_slowly(one)
    assert too_slow(page, new_page()) is None
