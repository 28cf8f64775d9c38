# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser, fed by a real controller."""

import contextlib
import re
import signal
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from accesspoint.checks.harness.browser import Browser, browser, missing_browser
from accesspoint.checks.harness.switches import (
    ROOT,
    SERVER,
    STATION,
    WAIT_SECONDS,
    Controller,
    SwitchLab,
    udp,
    wait_for,
)
from accesspoint.checks.harness.waiting import free_port, paced

WEB = ROOT / "controller/web"
AP = "#/access-points/ap1"
NAMES = "return [...document.querySelectorAll('.overview tbody tr:not([hidden]) a')].map((link) => link.textContent)"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser of all tests."""
    if reason := missing_browser():
        pytest.skip(reason)
    with browser() as made:
        yield made


@pytest.fixture
def window(chromium: Browser) -> Browser:
    """Nobody is logged in; it is tall enough for everything, as what is out of sight asks for nothing."""
    chromium.open("about:blank")
    chromium.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    chromium.size(1360, 2000)
    chromium.colours("light")
    chromium.complaints()
    return chromium


@contextlib.contextmanager
def talking(made: SwitchLab, flows: int = 3) -> Iterator[None]:
    """Some packets of some flows a second, in both directions."""
    stop = threading.Event()

    def run() -> None:
        number = 0
        for _ in paced(stop, 0.02):
            number = (number + 1) % flows
            made.wires[2].send(udp(SERVER, STATION, 443, 40_000 + number, 1000))
            made.wires[1].send(udp(STATION, SERVER, 50_000 + number, 443, 500))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def token(controller: Controller, role: str) -> str:
    made = controller.request("POST", "/api/v1/tokens", json={"name": role, "role": role})
    return str(made.json()["token"])


def test_its_files_need_no_token_and_nothing_from_elsewhere(link_lab: SwitchLab) -> None:
    controller = link_lab.controller(ready=False)
    page = httpx.get(f"{controller.url}/", timeout=WAIT_SECONDS)
    assert (page.status_code, page.text) == (200, (WEB / "index.html").read_text())
    for file in WEB.iterdir():
        text = file.read_text()
        assert "SPDX-License-Identifier: Apache-2.0" in text
        assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), file
        # Markup and scripts name what is there.
        names = re.findall(r"[\"/]static/([\w.]+)", text) + re.findall(r'from "\./([\w.]+)"', text)
        assert all((WEB / name).is_file() for name in names)
        url = f"{controller.url}/static/{file.name}"
        answer = httpx.get(url, timeout=WAIT_SECONDS)
        # A new version is seen at once.
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")
        again = httpx.get(url, headers={"if-none-match": answer.headers["etag"]}, timeout=WAIT_SECONDS)
        assert again.status_code == 304


def test_an_operator_watches_and_changes_a_weight(link_lab: SwitchLab, window: Browser) -> None:
    link_lab.start_switch()
    controller = link_lab.controller()
    link_lab.introduce(controller)
    window.open(controller.url)
    window.type("#token", "nothing")
    window.click("form.login button")
    window.wait_text("form.login .why", lambda text: "is not valid" in text)
    window.run("document.getElementById('token').value = ''")
    window.log_in(controller.url, token(controller, "operator"))
    assert "operator" in window.text("#who")
    with talking(link_lab):
        window.wait_text(".overview td:nth-child(3)", lambda text: text.endswith("kbit/s") and text != "0 kbit/s")
        window.click(".overview th a")
        window.wait_text("h1", lambda text: text == "ap1")
        assert window.driver.title == "ap1"
        window.wait_text(".chart .legend b", lambda text: "bit/s" in text)
        # The cursor of the charts, by the keyboard.
        window.type("canvas.plot", "\ue012")  # arrow to the left
        window.wait_text(".chart .when", lambda text: text.count(":") == 2)
        assert "down" in str(window.find("canvas.plot").get_attribute("aria-label"))
        # A flow, from the table into its dialog and back by the keyboard.
        window.wait_text("tbody button.link", lambda text: "10.0.0." in text)
        window.type("tbody button.link", "\n")
        window.wait_text("dialog .legend b", lambda text: "bit/s" in text)
        window.type("dialog button", "\n")
        wait_for(lambda: not window.all("dialog"))
        # A class's weight by its slider.
        before = controller.get("class-weights")["uplink"]
        slider = "input[type=range][aria-label='Weight of uplink']"
        window.find(f"{slider}:enabled")
        window.type(slider, "\ue014")  # arrow to the right
        after = wait_for(lambda: (now := controller.get("class-weights")["uplink"]) != before and now)
        assert after > before
        window.wait_text(".note", lambda text: f"Weight of uplink is {after:g} now" in text)
        # What somebody else changes is seen.
        controller.send("PATCH", "class-weights", {"uplink": 3})
        exact = "return document.querySelector(\"input[type=number][aria-label^='Weight of uplink']\").value"
        wait_for(lambda: window.run(exact) == "3")

        def kept() -> bool:
            """The history has it, too, once a second of traffic has been written."""
            ports = controller.get("history?start=-60&resolution=1")["ports"]
            return bool(ports) and max(ports[0]["columns"]["sent_downlink_bps"]) > 0

        wait_for(kept)
    assert window.complaints() == []


def test_a_port_that_is_removed_leaves_the_page(link_lab: SwitchLab, window: Browser) -> None:
    link_lab.start_switch()
    controller = link_lab.controller()
    window.log_in(controller.url, token(controller, "admin"))
    window.click(".overview th a")
    rows = "[aria-label='Ports'] tbody tr"
    window.wait_text(f"{rows}:last-child th", lambda text: text == "2 uplink")
    both = controller.get("config")["ports"]
    controller.send("PATCH", "config", {"ports": both[:1]})
    window.wait_text(f"{rows}:last-child th", lambda text: text == "1 station")
    assert window.text("#port").splitlines() == ["All ports", "Port 1, station"]
    controller.send("PATCH", "config", {"ports": both})
    window.wait_text(f"{rows}:last-child th", lambda text: text == "2 uplink")


def test_the_api_can_be_read_in_a_browser(link_lab: SwitchLab, window: Browser) -> None:
    controller = link_lab.controller(ready=False)
    window.open(f"{controller.url}/docs")
    window.wait_text("main", lambda text: text.startswith("Log in"))
    window.log_in(controller.url, controller.token)
    # Without a session the document is refused, which the browser notes.
    window.complaints()
    window.open(f"{controller.url}/docs#change_ncr")
    window.wait_text("h1", lambda text: text.startswith("Access point controller"))
    document = controller.request("GET", "/openapi.json").json()
    assert len(window.all("details")) == sum(len(methods) for methods in document["paths"].values())
    assert "queue_target_ms" in window.text("details[open]")
    assert not window.complaints()


def dialog(window: Browser, **values: object) -> None:
    """Fill the fields of the dialog by their labels, and press its button."""
    window.find("dialog[open]")
    for label, value in values.items():
        window.run(
            "const [words, value] = arguments;"
            "const labels = [...document.querySelectorAll('dialog label')];"
            "const input = labels.find((label) => label.textContent.startsWith(words)).control;"
            "if (input.type === 'checkbox') input.checked = value; else input.value = value",
            label.replace("_", " "),
            value,
        )
    window.click("dialog button.primary")


def test_an_operator_turns_features_and_rules(link_lab: SwitchLab, window: Browser) -> None:
    link_lab.start_switch()
    controller = link_lab.controller()
    link_lab.introduce(controller)
    window.log_in(controller.url, token(controller, "operator"))
    window.open(f"{controller.url}/{AP}")
    settings = "section[aria-label=Settings] "
    window.find("#feature-sparse:enabled")
    window.type("#feature-sparse", " ")
    window.wait_text(settings + ".note", lambda text: text == "Sparse flows first is off now.")
    assert controller.get("features")["sparse"] is False
    window.set(settings + "select", "paper")
    window.wait_text(settings + ".note", lambda text: text == "The law is paper now.")
    assert controller.get("ncr")["law"] == "paper"
    # What somebody else did shows, and is not undone by a click.
    controller.send("PATCH", "features", {"ack_filter": False})
    window.type("#feature-ncr", " ")
    window.wait_text(settings + ".note", lambda text: "Somebody else changed these meanwhile" in text)
    window.find("#feature-ack_filter:not(:checked)")
    assert controller.get("features")["ncr"] is True
    window.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Add a rule').click()")
    dialog(window, Name="voice", DSCP=46, Priority_queue=6)
    window.wait_text(settings + "tbody", lambda text: text.startswith("voice dscp 46 class 3 priority 6 yes"))
    assert [(rule["name"], rule["dscp"]) for rule in controller.get("rules")] == [("voice", 46)]
    window.click("button[aria-label='Remove rule voice']")
    dialog(window)
    wait_for(lambda: controller.get("rules") == [])
    window.set(settings + "input[max='1000000']", 0.9)
    window.wait_text(settings + ".note", lambda text: text == "The rate of port 1 is 0.9 Mbit/s now.")
    assert controller.get("config")["ports"][0]["capacity_bps"] == 900_000
    window.wait_text("section[aria-label=Changes] tbody tr", lambda text: "ports.1.capacity_bps" in text)
    assert window.text("section[aria-label=Changes] tbody tr").endswith("\N{RIGHTWARDS ARROW} 900000")
    # A station gets a name.
    window.wait_text("section[aria-label=Stations] tbody button", lambda text: text == STATION.hex(":"))
    window.type("section[aria-label=Stations] tbody button", "\n")
    window.wait_text("dialog .used", lambda text: text == "Used today: 0 B down, 0 B up; yesterday: 0 B down, 0 B up.")
    dialog(window, Name="Printer")
    window.wait_text("section[aria-label=Stations] tbody", lambda text: "Printer" in text)
    assert controller.get(f"stations/{STATION.hex(':')}")["name"] == "Printer"
    # It is held back, locked out and locked in; what is left as it is is not said again.
    window.type("section[aria-label=Stations] tbody button", "\n")
    dialog(window, Limit_down="5", Weight="2.5", Blocked=True, Locked=True)
    row = "section[aria-label=Stations] tbody tr"
    window.wait_text(
        row, lambda text: all(word in text for word in ("5.00 Mbit/s down", "2.5", "blocked, locked to port 1"))
    )
    said = controller.get("config")["stations"][STATION.hex(":")]
    assert said == {"name": "Printer", "group": None, "locked_port": 1, "blocked": True, "weight": 2.5,
                    "limit_down_bps": 5_000_000, "limit_up_bps": None}  # fmt: skip
    window.type("section[aria-label=Stations] tbody button", "\n")
    dialog(window, Limit_down="", Weight="", Blocked=False, Locked=False)
    window.wait_text(row, lambda text: "blocked" not in text and "Mbit/s down" not in text)
    assert "weight" not in controller.get("config")["stations"][STATION.hex(":")]
    # Nothing of an admin's is offered.
    assert not window.all(".danger-zone") and not window.find("#tokens").is_displayed()
    assert window.complaints() == []


def press(window: Browser, word: str) -> None:
    """Press the button of this word, or of this label, in the settings."""
    window.run(
        "const [word] = arguments;"
        "const buttons = [...document.querySelectorAll('section[aria-label=Settings] button')];"
        "buttons.find((one) => one.textContent === word || one.ariaLabel === word).click()",
        word,
    )


def test_an_admin_makes_groups_and_a_schedule(link_lab: SwitchLab, window: Browser) -> None:
    link_lab.start_switch()
    controller = link_lab.controller()
    link_lab.introduce(controller)
    window.log_in(controller.url, token(controller, "admin"))
    window.open(f"{controller.url}/{AP}")
    groups, periods = "table[aria-label='Groups of stations'] tbody", "table[aria-label=Schedule] tbody"
    window.wait_text("section[aria-label=Settings]", lambda text: "No groups" in text and "No schedule" in text)
    press(window, "Add a group")
    dialog(window, Name="guests", Weight="0.5", Limit_down="2")
    window.wait_text(groups, lambda text: text.startswith("guests 0.5 2.00 Mbit/s \N{EN DASH} 0"))
    press(window, "Edit group guests")
    dialog(window, Limit_up="0.3")
    window.wait_text(groups, lambda text: "300 kbit/s" in text)
    made = {"weight": 0.5, "limit_down_bps": 2_000_000, "limit_up_bps": 300_000}
    assert controller.get("config")["groups"] == {"guests": made}
    # A station joins it.
    window.wait_text("section[aria-label=Stations] tbody button", lambda text: text == STATION.hex(":"))
    window.type("section[aria-label=Stations] tbody button", "\n")
    wait_for(lambda: "guests" in window.text("dialog[open]"))
    dialog(window, Group="guests")
    shown = "in guests", "0.5", "2.00 Mbit/s down, 300 kbit/s up"
    window.wait_text("section[aria-label=Stations] tbody", lambda text: all(word in text for word in shown))
    # Another setting of it leaves the group's weight.
    window.type("section[aria-label=Stations] tbody button", "\n")
    dialog(window, Name="Phone")
    wait_for(lambda: controller.get("config")["stations"][STATION.hex(":")]["name"] == "Phone")
    assert "weight" not in controller.get("config")["stations"][STATION.hex(":")]
    window.wait_text(groups, lambda text: "300 kbit/s 1" in text)
    press(window, "Add a period")
    dialog(window, Port="2", From="18:00", To="23:00", Days="sat,sun", Rate="0.5")
    window.wait_text(periods, lambda text: text.startswith("2 18:00 23:00 Saturday and Sunday 500 kbit/s"))
    schedule = controller.get("config")["ports"][1]["schedule"]
    assert schedule == [{"start": "18:00", "end": "23:00", "days": ["sat", "sun"], "capacity_bps": 500_000}]
    press(window, "Remove period of port 2")
    dialog(window)
    wait_for(lambda: controller.get("config")["ports"][1]["schedule"] == [])
    press(window, "Remove group guests")
    dialog(window)
    # Stations are in it.
    window.wait_text("dialog .why", lambda text: "into group guests, which is not in" in text)
    assert "guests" in controller.get("config")["groups"]
    assert window.complaints() == []


def test_limit_that_is_missed_is_on_the_page_in_rest_metrics_and_log(link_lab: SwitchLab, window: Browser) -> None:
    link_lab.start_switch()
    controller = link_lab.controller()
    link_lab.introduce(controller)
    where, row = f"stations/{STATION.hex(':')}", "section[aria-label=Stations] tbody tr"
    assert controller.send("PATCH", where, {"limit_down_bps": 64_000}).status_code == 200
    window.log_in(controller.url + "/" + AP, token(controller, "viewer"))
    # No queue holds it, and marks do not: the sender says that its packets are ECN-capable, and does not slow down.
    with talking(link_lab, flows=1):
        wait_for(lambda: controller.get(where)["limit_down_missed"])
        assert not controller.get(where)["limit_up_missed"]
        window.wait_text(row, lambda text: "limit down missed" in text)
        metric = 'ap_stations_limit_missed{access_point="ap1"} 1.0'
        wait_for(lambda: metric in controller.request("GET", "/metrics").text)
    wait_for(lambda: not controller.get(where)["limit_down_missed"])
    begins = f"ap1: station {STATION.hex(':')}: limit_down_bps is missed"
    told = [line for line in controller.errors.read_text().splitlines() if "limit_" in line]
    pair = [f"{begins}: more has passed for 5 s", f"{begins} no longer"]
    # A sender that the machine holds up for a second has kept to the limit meanwhile.
    assert told and told == pair * (len(told) // 2)


def test_an_admin_adds_an_access_point_and_tokens(link_lab: SwitchLab, window: Browser) -> None:
    controller = link_lab.controller(ready=False)
    window.log_in(controller.url, controller.token)
    add = "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Add an access point').click()"
    wait_for(lambda: window.run(NAMES) == ["ap1"])
    window.run(add)
    dialog(window, Name="ap1", Address=f"127.0.0.1:{free_port()}")
    window.wait_text("dialog .why", lambda text: text == "access point ap1 exists already")
    dialog(window, Name="ap2")
    wait_for(lambda: window.run(NAMES) == ["ap1", "ap2"])
    made = controller.request("GET", "/api/v1/access-points/ap2/config").json()
    assert [(port["port"], port["role"], port["capacity_bps"]) for port in made["ports"]] == [
        (1, "station", "auto"), (2, "uplink", "auto")
    ]  # fmt: skip
    window.click("#tokens")
    window.wait_text("h1", lambda text: text == "Tokens")
    window.wait_text("tbody", lambda text: text.startswith("admin admin"))
    window.click("button.primary")
    dialog(window, Whose="grafana", Role="viewer")
    secret = window.wait_text(".secret", lambda text: text.startswith("ap_"))
    headers = {"authorization": f"Bearer {secret}"}
    answer = httpx.get(f"{controller.url}/api/v1/session", headers=headers, timeout=WAIT_SECONDS)
    assert answer.json()["role"] == "viewer"
    window.run("document.querySelector('dialog').close()")
    window.click("button[aria-label='Revoke grafana']")
    dialog(window)
    window.wait_text("tbody", lambda text: "revoked" in text)
    # Removing asks for its name.
    window.open(f"{controller.url}/#/access-points/ap2")
    remove = (
        "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Remove this access point').click()"
    )
    window.find(".danger-zone")
    window.run(remove)
    dialog(window, Its="ap1")
    window.wait_text("dialog .why", lambda text: "That is not ap2" in text)
    dialog(window, Its="ap2")
    wait_for(lambda: controller.request("GET", "/api/v1/access-points/ap2").status_code == 404)
    assert window.complaints() == []


def test_page_lists_changes_and_restores_one(link_lab: SwitchLab, window: Browser) -> None:
    controller = link_lab.controller(ready=False)
    first = controller.get()["revision"]
    controller.send("PATCH", "class-weights", {"downlink": 7}, wait=0)
    window.log_in(controller.url, controller.token)
    window.open(f"{controller.url}/{AP}")
    rows = "section[aria-label=Changes] tbody"
    window.wait_text(rows, lambda text: "class_weights.downlink default \N{RIGHTWARDS ARROW} 7" in text)
    window.click(f"button[aria-label='Restore revision {first}']")
    dialog(window)
    wait_for(lambda: controller.get("class-weights")["downlink"] == 4)
    window.wait_text(rows, lambda text: "class_weights.downlink 7 \N{RIGHTWARDS ARROW} default" in text)
    window.click("#tokens")
    window.wait_text("[aria-label='Audit log'] tbody", lambda text: "/class-weights 200" in text and "/restore" in text)
    assert window.complaints() == []


def test_a_change_that_crosses_another_is_not_done(link_lab: SwitchLab, window: Browser) -> None:
    link_lab.start_switch()
    controller = link_lab.controller()
    window.log_in(controller.url, controller.token)
    window.open(f"{controller.url}/{AP}")
    window.find("input[type=range][aria-label='Weight of uplink']:enabled")
    # The page does not hear of the other change before its own was answered.
    window.run(
        "const real = window.fetch; let answered = false;"
        "window.fetch = async (path, options) => {"
        "  const asks = path.endsWith('/class-weights') && options.method === 'GET';"
        "  if (asks && !answered) throw new TypeError('held back');"
        "  const answer = await real(path, options);"
        "  answered ||= options.method === 'PATCH';"
        "  return answer; }"
    )
    controller.send("PATCH", "class-weights", {"uplink": 3})
    window.set("input[type=number][aria-label^='Weight of uplink']", 9)
    window.wait_text(".note", lambda text: "Somebody else changed the weights meanwhile: uplink is 3" in text)
    assert controller.get("class-weights")["uplink"] == 3


def test_a_viewer_looks_only_and_knows_when_it_is_old(link_lab: SwitchLab, window: Browser) -> None:
    controller = link_lab.controller(ready=False)
    window.log_in(controller.url, token(controller, "viewer"))
    # The switch is away: it says so, and what to do.
    window.wait_text(".overview .why", lambda text: "no P4Runtime switch answers at 127.0.0.1:" in text)
    # Nothing is known of it, which is not the same as nothing.
    cells = "return [...document.querySelectorAll('.overview td.number')].map((cell) => cell.innerText)"
    assert window.run(cells) == ["\N{EN DASH}"] * 11
    link_lab.start_switch()
    window.wait_text(".overview tbody th", lambda text: text.endswith("ready"))
    window.open(f"{controller.url}/{AP}")
    window.wait_text(".note", lambda text: text == "Your role, viewer, may look but not change weights.")
    assert window.all("input[type=range]:disabled") and not window.all("input[type=range]:enabled")
    window.wait_text("[aria-label=Flows] .empty", lambda text: text == "No flow has traffic now.")
    controller.process.send_signal(signal.SIGSTOP)
    window.wait_text("#stream", lambda text: text == "disconnected")
    assert "what stands here is old" in window.text("#banner")
    controller.process.send_signal(signal.SIGCONT)
    window.wait_text("#stream", lambda text: text == "live")
    assert not window.find("#banner").is_displayed()
    window.click("#leave")
    window.find("#token")
    window.open(f"{controller.url}/#/")
    window.find("#token")


@pytest.mark.realtime
@pytest.mark.timeout(1800)
def test_fifty_access_points_and_a_thousand_flows(link_lab: SwitchLab, window: Browser) -> None:
    link_lab.start_switch()
    away = [
        {**link_lab.config()["access_points"][0], "name": f"ap{number}", "address": f"127.0.0.1:{free_port()}"}
        for number in range(2, 51)
    ]
    controller = link_lab.controller(flow_idle_timeout=3600)
    for entry in away:
        assert controller.request("POST", "/api/v1/access-points", json={**entry, "enabled": False}).status_code == 201
    link_lab.introduce(controller)

    def all_are_known() -> bool:
        # A session that ends takes digests with it.
        for number in range(500):
            link_lab.wires[1].send(udp(STATION, SERVER, 10_000 + number, 443))
            link_lab.wires[2].send(udp(SERVER, STATION, 443, 10_000 + number))
            time.sleep(0.001)
        return bool(controller.get()["flows"] >= 990)

    wait_for(all_are_known)
    window.size(1360, 900)
    window.log_in(controller.url, controller.token)
    wait_for(lambda: len(window.run(NAMES)) == 50)
    assert window.run(NAMES)[:3] == ["ap1", "ap2", "ap3"]
    # Most of the time nothing is being computed, with all of them on show.
    window.run(
        "window.busy = 0; new PerformanceObserver((list) => { for (const task of list.getEntries())"
        " window.busy += task.duration; }).observe({type: 'longtask'})"
    )
    time.sleep(3)
    assert window.run("return window.busy") < 1500
    window.type("#filter", "ap4")
    wait_for(lambda: len(window.run(NAMES)) == 11)
    window.set("#state", "ready")
    wait_for(lambda: window.run(NAMES) == [])
    assert window.text("p.empty") == "No access point fits this filter."
    window.open(f"{controller.url}/{AP}")
    window.set("#flows-active", "")
    shown = "[aria-label=Flows] .tools > span:not(.grow)"
    window.wait_text(shown, lambda text: text.startswith("1 to 50 of ") and int(text[11:].replace(",", "")) >= 990)
    assert len(window.all("[aria-label=Flows] tbody tr")) == 50
    window.type("[aria-label=Flows] .tools button:last-child", "\n")
    window.wait_text(shown, lambda text: text.startswith("51 to 100 of "))


def test_a_removed_access_point_is_told_of_although_the_list_dropped_it_before(
    link_lab: SwitchLab, window: Browser
) -> None:
    controller = link_lab.controller(ready=False)
    hasty = "const later = setTimeout; window.setTimeout = (what, ms) => later(what, ms === 15000 ? 50 : ms)"
    script = window.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": hasty})
    try:
        window.log_in(controller.url + "/" + AP, controller.token)
        window.wait_text("#stream", lambda text: text == "live")
        controller.request("DELETE", "/api/v1/access-points/ap1").raise_for_status()
        window.wait_text("p.empty", lambda text: text == "Access point ap1 was removed.")
    finally:
        window.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_it_fits_a_phone_follows_the_colours_and_can_be_empty(link_lab: SwitchLab, window: Browser) -> None:
    link_lab.start_switch()
    controller = link_lab.controller()
    window.size(360, 740)
    window.log_in(controller.url, controller.token)
    for path in ("#/", AP):
        window.open(f"{controller.url}/{path}")
        window.wait_text("dl.figures dd", lambda text: text[:1].isdigit())
        assert window.run("return document.documentElement.scrollWidth") <= 360
        # Everything that can be operated has a name.
        nameless = window.run(
            "return [...document.querySelectorAll('button, input, select, a, canvas:not([aria-hidden])')]"
            ".filter((element) => !(element.textContent.trim() || element.ariaLabel || element.labels?.length))"
            ".map((element) => element.outerHTML)"
        )
        assert nameless == []
    # From anywhere on the long page of an access point its parts are one touch away.
    names = window.run("return [...document.querySelectorAll('.jump button')].map((each) => each.textContent)")
    assert {"Classes", "Ports", "Flows", "Stations", "Settings"} <= set(names)
    for name in (names[-1], names[0]):
        top = (
            f"[...document.querySelectorAll('.jump button')].find((each) => each.textContent === '{name}').click();"
            f"return document.querySelector('section[aria-label=\"{name}\"]').getBoundingClientRect().top"
        )
        assert -1 <= window.run(top) <= 740 - 1
        assert window.run("return document.activeElement.ariaLabel") == name
        assert window.run("return document.querySelector('.jump').getBoundingClientRect().top") <= 100
    paper = "return getComputedStyle(document.body).backgroundColor"
    for scheme, colour in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 22, 29)")):
        window.colours(scheme)
        assert window.run(paper) == colour
    window.set("#theme", "light")
    assert window.run(paper) == "rgb(255, 255, 255)"
    # Without any access point there is nothing to hear of, and nothing wrong.
    controller.request("DELETE", "/api/v1/access-points/ap1").raise_for_status()
    window.wait_text("p.empty", lambda text: text == "Access point ap1 was removed.")
    window.open(f"{controller.url}/#/")
    window.wait_text("p.empty", lambda text: text.startswith("No access points yet."))
    window.wait_text("#stream", lambda text: text == "live")
    time.sleep(4.5)
    assert (window.text("#stream"), window.text("#banner")) == ("live", "")
